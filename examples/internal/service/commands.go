package service

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/delegate-io/dlite/examples/internal/program"
)

// Program is a program that can be a service.
type Program struct {
	// Name is the name of the program, such as delegate. Its command server runs the service.
	Name string
	// About describes the service for people.
	About string
	// Check checks a file of settings.
	Check func(file string) error
	// KeepData has uninstall keep the program's files, unless the operator wants them removed.
	KeepData bool
	// Ports means that the program may take ports below 1024, and starts no steps.
	Ports bool
}

// Commands returns the commands that install, control and remove the service.
func Commands(p Program) []*ffcli.Command {
	return []*ffcli.Command{
		p.installCommand(), p.uninstallCommand(),
		p.command("start", "start the service, and wait until it works", func(fs *flag.FlagSet) func(context.Context, Service) error {
			wait := waitFlag(fs)
			return func(ctx context.Context, s Service) error { return s.Start(ctx, *wait, os.Stdout) }
		}),
		p.command("stop", "stop the service after its work is done", func(*flag.FlagSet) func(context.Context, Service) error {
			return func(ctx context.Context, s Service) error { return s.Stop(ctx, os.Stdout) }
		}),
		p.command("restart", "stop the service after its work is done, and start it again", func(fs *flag.FlagSet) func(context.Context, Service) error {
			wait := waitFlag(fs)
			return func(ctx context.Context, s Service) error { return s.Restart(ctx, *wait, os.Stdout) }
		}),
		p.command("status", "print the state of the service; exit code 0: it runs, 3: it does not run, 4: it is not installed", func(fs *flag.FlagSet) func(context.Context, Service) error {
			format := fs.String("o", "text", "text or json")
			return func(ctx context.Context, s Service) error { return s.print(ctx, os.Stdout, *format) }
		}),
	}
}

func waitFlag(fs *flag.FlagSet) *time.Duration {
	return fs.Duration("wait", time.Minute, "how long to wait until the program works; 0 does not wait")
}

// command returns a command for one service.
func (p Program) command(name, help string, register func(*flag.FlagSet) func(context.Context, Service) error) *ffcli.Command {
	fs := flag.NewFlagSet(p.Name+" "+name, flag.ContinueOnError)
	s := Service{Program: p.Name}
	fs.StringVar(&s.Name, "name", DefaultName(p.Name), "name of the service; several services of one machine need different names")
	fs.BoolVar(&s.User, "user", false, "a service of the current user, and not of the system")
	run := register(fs)
	return &ffcli.Command{
		Name: name, ShortUsage: p.Name + " " + name + " [flags]", ShortHelp: help, FlagSet: fs,
		Exec: func(ctx context.Context, args []string) error {
			if _, err := program.Arguments(fs, args); err != nil {
				return err
			}
			if err := s.Check(); err != nil {
				return err
			}
			return run(ctx, s)
		},
	}
}

func (p Program) installCommand() *ffcli.Command {
	return p.command("install", "install this program as a service, or install it again", func(fs *flag.FlagSet) func(context.Context, Service) error {
		i := installation{about: p.About, check: p.Check, ports: p.Ports, out: os.Stdout}
		fs.StringVar(&i.settings, program.EnvFileFlag, "", "file with settings to copy (default: keep the settings of the installed service)")
		rights := new(string)
		if !p.Ports {
			fs.StringVar(rights, "rights", "", "rights of a service of the system: own (a user of its own), docker (also the Docker engine) or root (default: as installed before, or else own)")
		}
		fs.DurationVar(&i.watchdog, "watchdog", 2*time.Minute, "time after which a program that hangs is restarted (systemd)")
		wait := waitFlag(fs)
		noStart := fs.Bool("no-start", false, "do not start the service")
		return func(ctx context.Context, s Service) (err error) {
			i.Service, i.wait, i.start = s, *wait, !*noStart
			if i.paths, err = s.Paths(); err != nil {
				return err
			}
			old, _ := readRecord(i.paths.Definition)
			if i.rights, err = parseRights(*rights, old.Rights); err != nil {
				return err
			}
			if i.watchdog < time.Second {
				return fmt.Errorf("--watchdog: it must be at least 1s")
			}
			return i.run(ctx)
		}
	})
}

func parseRights(given string, before Rights) (Rights, error) {
	switch r := Rights(given); r {
	case "":
		if before != "" {
			return before, nil
		}
		return Own, nil
	case Own, Docker, Root:
		return r, nil
	}
	return "", fmt.Errorf("--rights %q: it must be own, docker or root", given)
}

func (p Program) uninstallCommand() *ffcli.Command {
	return p.command("uninstall", "stop the service after its work is done, and remove everything that install made", func(fs *flag.FlagSet) func(context.Context, Service) error {
		r := removal{data: !p.KeepData}
		fs.BoolVar(&r.keepSettings, "keep-settings", false, "keep config.env and changes of the unit")
		if p.KeepData {
			fs.BoolVar(&r.data, "delete-data", false, "remove the data of the program too")
		}
		return func(ctx context.Context, s Service) (err error) {
			i := installation{Service: s, out: os.Stdout, rights: Own}
			if i.paths, err = s.Paths(); err != nil {
				return err
			}
			if err := i.checkPlatform(ctx); err != nil {
				return err
			}
			found := false
			if r.record, found, err = i.installed(ctx); err != nil {
				return err
			}
			if !found {
				return fmt.Errorf("%s is not installed", s.Name)
			}
			if err := s.Stop(ctx, os.Stdout); err != nil {
				return err
			}
			return i.remove(ctx, r)
		}
	})
}

// exitCode is the error of status: the state is printed already.
type exitCode struct {
	code int
	text string
}

func (e exitCode) Error() string { return e.text }

// ExitCode returns the exit code of the program.
func (e exitCode) ExitCode() int { return e.code }

// The exit codes of status, as the LSB defines them for init scripts.
const (
	codeStopped = 3
	codeUnknown = 4
)

// print prints the status. The error has the exit code.
func (s Service) print(ctx context.Context, out io.Writer, format string) error {
	if format != "text" && format != "json" {
		return fmt.Errorf("-o %q: it must be text or json", format)
	}
	st, err := s.Status(ctx)
	if err != nil {
		return exitCode{codeUnknown, err.Error()}
	}
	if format == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		err = enc.Encode(st)
	} else {
		err = st.write(out, time.Now())
	}
	if err != nil {
		return err
	}
	return st.exit()
}

// exit returns the error with the exit code of status.
func (s Status) exit() error {
	switch s.State {
	case Starting, Running, Draining:
		return nil
	case Missing:
		return exitCode{codeUnknown, s.Service + " is not installed"}
	case Silent:
		return exitCode{codeUnknown, s.Service + " does not answer"}
	default:
		return exitCode{codeStopped, s.Service + " does not run"}
	}
}

// write prints the status for people.
func (s Status) write(out io.Writer, now time.Time) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) // Flush tells
	}
	row("service", "%s", s.Service)
	row("state", "%s", s.State)
	if s.Message != "" {
		row("message", "%s", s.Message)
	}
	if s.PID != 0 {
		row("process", "%d, since %s (%s)", s.PID, s.Started.Format(time.DateTime), now.Sub(s.Started).Round(time.Second))
		row("version", "%s", s.Version)
	}
	if d := s.Delegate; d != nil {
		row("name", "%s", d.Name)
		for _, server := range d.Servers {
			beat := "never"
			if !server.Heartbeat.IsZero() {
				beat = now.Sub(server.Heartbeat).Round(time.Second).String() + " ago"
			}
			row(server.Kind, "%s, last heartbeat %s", server.URL, beat)
		}
		most := "no limit"
		if d.SlotsMax > 0 {
			most = fmt.Sprint(d.SlotsMax)
		}
		row("slots", "%d used, limit %s", d.SlotsUsed, most)
		row("stages", "%d running", d.Stages)
		if d.LogsWaiting > 0 {
			row("logs", "%d wait for their log service", d.LogsWaiting)
		}
	}
	if m := s.Manager; m != nil {
		row("address", "%s", m.URL)
		row("store", "%s", m.Store)
	}
	return t.Flush()
}

// codeSettings is EX_CONFIG of sysexits.h.
const codeSettings = 78

// WrongSettings returns an error with the exit code 78, after which systemd does not restart the program.
func WrongSettings(err error) error { return exitCode{codeSettings, err.Error()} }
