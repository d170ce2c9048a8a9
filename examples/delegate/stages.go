package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/poller/metrics"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// closeTimeout bounds the cleanup of what is open at the end.
const closeTimeout = 2 * time.Minute

// stages are the transactions of all drivers. Each driver has a manager and a
// ledger of its own; they share the delegate's slots.
type stages struct {
	routes   router.RouteMap
	managers []*transaction.Manager
	drivers  []driver.Driver
	stop     context.CancelFunc
	tending  sync.WaitGroup
}

// openStages opens the drivers that cfg names, and cleans up or takes up what an
// earlier process left on each.
func openStages(ctx context.Context, cfg config, slots *capacity.Slots, log zerolog.Logger) (*stages, error) {
	tending, stop := context.WithCancel(ctx)
	s := &stages{routes: router.RouteMap{}, stop: stop}
	for _, name := range cfg.Drivers {
		if err := s.open(ctx, tending, cfg, name, slots, log); err != nil {
			return nil, errors.Join(err, s.close(ctx))
		}
	}
	return s, nil
}

func (s *stages) open(ctx, tending context.Context, cfg config, name string, slots *capacity.Slots, log zerolog.Logger) error {
	d, err := openDriver(ctx, cfg, name, log)
	if err != nil {
		return err
	}
	s.drivers = append(s.drivers, d)
	ledger := cfg.LedgerDir
	if name != transaction.Local {
		ledger = filepath.Join(ledger, name)
	}
	kept := []transaction.Option{
		transaction.WithLedger(ledger), transaction.WithSlots(slots), transaction.WithDelegate(cfg.Name), transaction.WithLogger(log),
	}
	if cfg.Resume {
		kept = append(kept, transaction.WithResume(""))
	}
	m := transaction.New(d, kept...)
	switch err := m.Recover(ctx); {
	case errors.Is(err, transaction.ErrLedger):
		return fmt.Errorf("LEDGER_DIR: %w", err)
	case err != nil:
		// The rest is tried again while the delegate works.
		log.Error().Err(err).Str("driver", name).Msg("could not remove everything that an earlier run left")
	}
	s.managers = append(s.managers, m)
	infras := []string{name}
	if name == cfg.LocalStages && name != transaction.Local {
		infras = append(infras, transaction.Local)
	}
	s.routes = s.routes.Merge(m.RoutesFor(infras...))
	s.tending.Go(func() { m.Tend(tending, time.Minute) })
	return nil
}

// orphan cleans up the transaction of a task that its manager has forgotten.
func (s *stages) orphan(ctx context.Context, t *task.Task) {
	for _, m := range s.managers {
		m.Orphan(ctx, t)
	}
}

// disown cleans up what was taken up of an earlier process and has no manager.
func (s *stages) disown(ctx context.Context) {
	for _, m := range s.managers {
		m.Disown(ctx)
	}
}

// stats are those of all.
func (s *stages) stats() (sum metrics.StageStats) {
	for _, m := range s.managers {
		one := m.Stats()
		sum.Open += one.Open
		sum.LogBytes += one.LogBytes
		sum.LogsIncomplete += one.LogsIncomplete
	}
	return sum
}

// close cleans up what is open. The drivers go after their managers.
func (s *stages) close(ctx context.Context) error {
	s.stop()
	s.tending.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	errs := make([]error, len(s.managers))
	var wg sync.WaitGroup
	for i, m := range s.managers {
		wg.Go(func() { errs[i] = m.Close(ctx) })
	}
	wg.Wait()
	for _, d := range s.drivers {
		if c, ok := d.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
