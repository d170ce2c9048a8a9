package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// runCommand runs a pipeline on this machine.
type runCommand struct {
	inputs

	stages  listFlag
	secrets string
	branch  string
	trusted bool
	verbose bool
	file    string
}

func newRunCommand() *ffcli.Command {
	c := &runCommand{}
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	c.register(fs)
	fs.Var(&c.stages, "stage", "`identifier` of a stage to run; may be repeated (default: all)")
	fs.StringVar(&c.secrets, "secret-file", "", "`file` with lines ID=value for <+secrets.getValue(\"ID\")>")
	fs.StringVar(&c.branch, "branch", "", "the branch of codebase.branch")
	fs.BoolVar(&c.trusted, "trusted", false, "let host steps reach everything that you can reach")
	fs.BoolVar(&c.verbose, "v", false, "show the logs of the manager, the service and the delegate")
	return &ffcli.Command{
		Name: "run", ShortUsage: "pipelines run <file> [flags]", ShortHelp: "run a pipeline on this machine", FlagSet: fs,
		Exec: func(ctx context.Context, args []string) error {
			args, err := program.Arguments(fs, args, "file")
			if err != nil {
				return err
			}
			c.file = args[0]
			signals := make(chan os.Signal, 2)
			signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			// The process that reads the output may end before the program, as tee does after a Ctrl-C. The program
			// must still clean up.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			ok, err := c.run(ctx, os.Stdout, signals)
			if err != nil {
				return exitError{err, 2}
			}
			if !ok {
				return exitError{errors.New("the run did not succeed"), 1}
			}
			return nil
		},
	}
}

// run reports whether the run succeeded.
func (c *runCommand) run(ctx context.Context, out io.Writer, signals <-chan os.Signal) (ok bool, err error) {
	req, err := c.request(c.file)
	if err != nil {
		return false, err
	}
	req.Stages, req.Branch = c.stages, c.branch
	if c.branch != "" {
		req.Codebase = map[string]any{"branch": c.branch, "build": map[string]any{"type": "branch", "spec": map[string]any{"branch": c.branch}}}
	}
	settings, err := c.readSettings()
	if err != nil {
		return false, err
	}
	templates, err := c.readTemplates()
	if err != nil {
		return false, err
	}
	secrets, err := readSecrets(c.secrets)
	if err != nil {
		return false, err
	}
	log := zerolog.Nop()
	if c.verbose {
		if log, _, err = logger.New(logger.Config{Level: "debug", Format: logger.Console}); err != nil {
			return false, err
		}
	}
	dir, err := os.MkdirTemp("", "dlite-pipelines-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := machine.Start(ctx, machine.Config{
		Dir: dir, Settings: settings, Templates: templates, Secrets: secrets, Trusted: c.trusted, Log: log,
	})
	if err != nil {
		return false, err
	}
	closing, now := context.WithTimeout(ctx, 10*time.Minute)
	defer now()
	defer func() { err = errors.Join(err, m.Close(closing)) }()
	started, err := m.Pipelines.Start(ctx, machine.Account, req)
	if err != nil {
		return false, withPlaces(err, req)
	}
	t := machine.NewTerminal(out)
	stop := c.abortOn(closing, m, started.ID, t, signals, now)
	defer stop()
	ended, err := m.Follow(ctx, started.ID, t)
	return ended.Status == "SUCCEEDED" || ended.Status == "IGNORE_FAILED", err
}

// abortOn aborts the run at the first signal, and ends the program without waiting at the second.
func (c *runCommand) abortOn(ctx context.Context, m *machine.Machine, id string, t *machine.Terminal, signals <-chan os.Signal, now func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			if n > 1 {
				t.Note("interrupted again: ending at once")
				now()
				return
			}
			t.Note("interrupted: aborting the run; interrupt again to end at once")
			if _, err := m.Pipelines.Abort(ctx, machine.Account, id, pipeline.Order{Reason: "interrupted"}); err != nil {
				t.Note("%v", err)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// withPlaces shows the places of the problems of a pipeline.
func withPlaces(err error, req pipeline.Request) error {
	var problems pipeline.Problems
	if !errors.As(err, &problems) {
		return err
	}
	return fmt.Errorf("the pipeline has errors\n%s", problems.Render(sources(req)...))
}

func sources(req pipeline.Request) []pipeline.Source {
	return []pipeline.Source{{Name: req.Name, Text: []byte(req.YAML)}}
}
