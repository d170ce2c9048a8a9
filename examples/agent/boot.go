package main

import (
	"context"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/driver/agent"
)

type bootCommand struct {
	Port string `name:"port" help:"Port, or plain file, with an agent.Boot as one line of JSON." required:"" placeholder:"PATH"`
	settings
}

// Run waits to be told, sets the clock and the random state, and serves.
func (c *bootCommand) Run(ctx context.Context) error {
	port, err := openPort(c.Port)
	if err != nil {
		return fmt.Errorf("open the port %s: %w", c.Port, err)
	}
	defer port.close()
	err = c.run(ctx, port)
	port.failed(err)
	return err
}

func (c *bootCommand) run(ctx context.Context, port *port) error {
	line, err := port.boot(ctx)
	if err != nil {
		return fmt.Errorf("wait to be told on %s: %w", c.Port, err)
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

// prepare brings a machine that may come from a snapshot to the present, before any
// key or certificate is looked at.
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
