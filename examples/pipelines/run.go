package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/peterbourgon/ff/v3/ffcli"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/examples/internal/plan"
	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/examples/internal/storage"
	"github.com/delegate-io/dlite/logger"
)

// runCommand runs a pipeline on this machine.
type runCommand struct {
	selection

	secrets string
	trusted bool
	verbose bool
	file    string
}

func newRunCommand() *ffcli.Command {
	c := &runCommand{}
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	c.register(fs)
	fs.StringVar(&c.secrets, "secret-file", "", "`file` with lines ID=value for <+secrets.getValue(\"ID\")>")
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
	settings, err := c.readSettings()
	if err != nil {
		return false, err
	}
	templates, err := c.readTemplates()
	if err != nil {
		return false, err
	}
	secrets, err := machine.ReadSecrets(c.secrets)
	if err != nil {
		return false, err
	}
	log := zerolog.Nop()
	if c.verbose {
		if log, _, err = logger.New(logger.Config{Level: "debug", Format: logger.Console}); err != nil {
			return false, err
		}
	}
	ended, err := machine.Run(ctx, machine.Config{
		Settings: settings, Templates: templates, Secrets: secrets, Trusted: c.trusted, Builtins: storage.Builtins(), Log: log,
	}, req, machine.NewTerminal(out), signals)
	return machine.Succeeded(ended), plan.WithPlaces(err, req)
}
