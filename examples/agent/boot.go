package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/examples/internal/program"
)

func bootCommand() *ffcli.Command {
	b := &booting{}
	fs := flag.NewFlagSet("agent boot", flag.ContinueOnError)
	fs.StringVar(&b.path, "port", "", "port, or plain file, with an agent.Boot as one line of JSON; required")
	b.register(fs)
	return &ffcli.Command{
		Name: "boot", ShortUsage: "agent boot --port PATH [flags]", ShortHelp: "read the settings from a port, then serve until a signal comes", FlagSet: fs,
		Exec: func(ctx context.Context, args []string) error {
			if _, err := program.Arguments(fs, args); err != nil {
				return err
			}
			port, err := openPort(b.path)
			if err != nil {
				return fmt.Errorf("open the port %s: %w", b.path, err)
			}
			defer port.close()
			err = b.run(ctx, port)
			port.failed(err)
			return err
		},
	}
}

// booting is the command boot.
type booting struct {
	settings
	path string
}

// run waits for the settings, sets the clock and the random state, and serves.
func (c *booting) run(ctx context.Context, port *port) error {
	line, err := port.boot(ctx)
	if err != nil {
		return fmt.Errorf("wait for the settings on %s: %w", c.path, err)
	}
	b, err := readBoot(line)
	clear(line)
	if err != nil {
		return err
	}
	if err := prepare(b); err != nil {
		return err
	}
	return serve(ctx, b, &c.settings, port.booted)
}

// prepare sets the clock and the random state, which a snapshot shares with other
// machines. It comes before the first use of a key or a certificate.
func prepare(b *agent.Boot) error {
	if b.Time != 0 {
		if err := setClock(time.Unix(0, b.Time)); err != nil {
			return fmt.Errorf("set the clock: %w", err)
		}
	}
	if len(b.Seed) > 0 {
		if err := seedRandom(b.Seed); err != nil {
			return fmt.Errorf("mix a seed into the random state: %w", err)
		}
	}
	return nil
}
