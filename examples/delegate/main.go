// Command delegate is the bundled delegate. It runs the stages that a manager sends: on this machine, on the host
// and in Docker containers, on machines of pools and in pods.
//
//	go run ./examples/delegate server --env-file config.env
//
// The file config.env holds at least
//
//	ACCOUNT_ID="demo"
//	TOKEN="<the account's secret>"
//	URL="http://127.0.0.1:3460"
//
// "delegate settings" lists every setting. The environment wins over the file, and an unknown name in the file is an
// error. "delegate check" checks the settings, the certificates, the manager and its clock, the Docker engine, the
// disk and the control groups, and prints how to mend each part that fails.
//
// The manager may be unreachable at the start and later. The first interrupt drains: the delegate finishes its
// stages and refuses new ones. The second interrupt cancels running steps and cleans up. At its start the delegate
// removes the resources that a killed process left. For that, each of several delegates on one machine needs its own
// NAME or LEDGER_DIR. On Linux neither the delegate nor a step writes a core dump; a step that needs one raises its
// limit (ulimit -c).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/examples/internal/service"
	"github.com/delegate-io/dlite/examples/internal/storage"
	"github.com/delegate-io/dlite/examples/internal/upgrade"
	"github.com/delegate-io/dlite/internal/process"
)

func main() {
	host.Supervise(supervisor)
	part := &upgrade.Process{}
	if serves(os.Args) {
		part = upgrade.Begin(program.Version())
	}
	program.Run(context.Background(), "delegate", "Runs the stages of a manager on this machine.",
		append(service.Commands(service.Program{Name: "delegate", About: "dlite delegate", Check: checkSettings}),
			newCommand("server", "run the delegate until it is interrupted",
				func(ctx context.Context, file string) error { return server(ctx, file, part) }),
			newCommand("check", "check the parts that the delegate needs, and print advice for each missing one",
				func(ctx context.Context, file string) error { return check(ctx, os.Stdout, file, os.Environ()) }),
			newCommand("settings", "list the settings that config.env may hold",
				func(context.Context, string) error { return describeSettings(os.Stdout) }),
			upgradeCommand(),
			storage.Command(),
		)...)
}

// serves reports whether the command line runs the delegate.
func serves(args []string) bool { return len(args) > 1 && args[1] == "server" }

// newCommand returns a command that takes a file of settings.
func newCommand(name, help string, run func(ctx context.Context, file string) error) *ffcli.Command {
	fs := flag.NewFlagSet("delegate "+name, flag.ContinueOnError)
	file := fs.String(program.EnvFileFlag, "", "file with settings, NAME=value a line; the environment wins over it")
	return &ffcli.Command{
		Name: name, ShortUsage: "delegate " + name + " [--env-file FILE]", ShortHelp: help, FlagSet: fs,
		Exec: func(ctx context.Context, args []string) error {
			if _, err := program.Arguments(fs, args); err != nil {
				return err
			}
			return run(ctx, *file)
		},
	}
}

// checkSettings checks a file of settings for a service, which gets none from the environment.
func checkSettings(file string) error {
	_, _, err := loadConfig(file, nil)
	return err
}

// server runs the delegate with the settings of a file and of the environment.
func server(ctx context.Context, file string, part *upgrade.Process) error {
	if err := process.ProtectMemory(); err != nil {
		fmt.Fprintln(os.Stderr, "delegate: warning: a crash may write a core dump, with secrets:", err)
	}
	cfg, warnings, err := loadConfig(file, os.Environ())
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "delegate: warning:", w)
	}
	if err != nil {
		return service.WrongSettings(err)
	}
	// The process that reads the output may end before the delegate, as tee does after a Ctrl-C. The delegate must
	// still clean up.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	cfg.part = part
	return service.Run(ctx, func(ctx context.Context) error { return serve(ctx, cfg, nil, os.Interrupt, syscall.SIGTERM) })
}
