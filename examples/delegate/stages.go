package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/task/capacity"
)

// openStages opens the drivers that cfg names. Each driver has its own ledger; all share the slots of the delegate.
// The caller closes the group, which closes the drivers.
func openStages(ctx context.Context, cfg config, out *client.HTTP, slots *capacity.Slots, openLog logOpener, log zerolog.Logger) (*transaction.Group, []driver.Driver, error) {
	var members []*transaction.Stages
	var drivers []driver.Driver
	for _, name := range cfg.Drivers {
		d, err := openDriver(ctx, cfg, name, out, log)
		if err != nil {
			return nil, nil, errors.Join(err, transaction.Join(members...).Close(ctx))
		}
		drivers = append(drivers, d)
		members = append(members, transaction.New(d, append(stageOptions(cfg, name, slots, log), transaction.WithLog(openLog))...))
	}
	return transaction.Join(members...), drivers, nil
}

func stageOptions(cfg config, name string, slots *capacity.Slots, log zerolog.Logger) []transaction.Option {
	ledger, infras := cfg.LedgerDir, []string{name}
	if name != transaction.Local {
		ledger = filepath.Join(ledger, name)
	}
	if name == cfg.LocalStages && name != transaction.Local {
		infras = append(infras, transaction.Local)
	}
	options := []transaction.Option{
		transaction.WithLedger(ledger), transaction.WithSlots(slots), transaction.WithDelegate(cfg.Name),
		transaction.WithLogger(log), transaction.WithInfra(infras...),
		transaction.WithMasks(cfg.masks()),
	}
	if cfg.Resume {
		options = append(options, transaction.WithResume(""))
	}
	return options
}
