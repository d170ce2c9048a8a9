package transaction

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/logger"
)

// sweep removes the transaction's resources and then its record. What would not
// go stays on record, and the transaction joins those that are tried again. One
// sweep of a transaction runs at a time; the others wait for it.
func (t *transaction) sweep(ctx context.Context) error {
	select {
	case t.sweeping <- struct{}{}:
		defer func() { <-t.sweeping }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for the cleanup of transaction %s: %w", t.env.ID, context.Cause(ctx))
	}
	if t.journal == nil || t.settled {
		return nil // without a record nothing was made
	}
	ctx, cancel := context.WithTimeout(ctx, t.stages.cleanup)
	defer cancel()
	t.mu.Lock()
	resources := slices.Clone(t.resources)
	t.mu.Unlock()
	early := t.stages.now().Before(t.lateUntil)
	left, err := t.clean(ctx, resources)
	if early && err == nil {
		t.stages.keep(t) // once more, a little later
		return nil
	}
	t.mu.Lock()
	t.resources = left
	t.mu.Unlock()
	if len(left) == 0 && err == nil {
		err = t.journal.remove()
	}
	if len(left) == 0 && err == nil {
		t.settled = true
		t.stages.settle(t)
		return nil
	}
	for _, r := range resources {
		if !slices.ContainsFunc(left, func(l driver.Resource) bool { return l.Kind == r.Kind && l.ID == r.ID }) {
			err = errors.Join(err, t.journal.append(entry{Gone: &r}, durable))
		}
	}
	t.stages.keep(t)
	return fmt.Errorf("cleaning up transaction %s: %w (left: %s)", t.env.ID, err, names(left))
}

// inFlight is how long after a process was killed a call that it made to an
// engine may still take effect: the engine goes on with what it was asked for,
// and what is not there yet cannot be removed.
const inFlight = 10 * time.Second

// sweepByLabels removes what carries this ledger's label, and belongs to no
// transaction that is open or on record: what no ledger knows any more.
func (m *Stages) sweepByLabels(ctx context.Context) error {
	finder, ok := m.driver.(driver.Finder)
	if !ok {
		return nil
	}
	if err := m.ledger.open(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.cleanup)
	defer cancel()
	found, err := finder.Find(ctx, map[string]string{driver.LabelLedger: m.ledger.id})
	if err != nil {
		return fmt.Errorf("looking for what no record names: %w", err)
	}
	stray := slices.DeleteFunc(found, func(r driver.Resource) bool { return m.knows(r.Labels[driver.LabelTransaction]) })
	if len(stray) == 0 {
		return nil
	}
	m.log.Warn().Str("resources", names(stray)).Msg("removing what no record names")
	if err := m.guard("cleanup", func() error { _, err := m.driver.Cleanup(ctx, stray); return err }); err != nil {
		return fmt.Errorf("removing what no record names: %w", err)
	}
	return nil
}

// knows says whether a transaction is open or on record here.
func (m *Stages) knows(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open[id] != nil {
		return true
	}
	for t := range m.stuck {
		if t.env.ID == id {
			return true
		}
	}
	return false
}

// due is when a transaction that is kept for it has to be swept again; zero
// means that there is none.
func (m *Stages) due() (at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for t := range m.stuck {
		if at.IsZero() || t.lateUntil.Before(at) {
			at = t.lateUntil
		}
	}
	return at
}

// clean has the driver remove resources. A driver that fails without saying what
// is left may have removed nothing.
func (t *transaction) clean(ctx context.Context, rs []driver.Resource) (left []driver.Resource, err error) {
	err = t.guard(ctx, "cleanup", func() error {
		left, err = t.stages.driver.Cleanup(ctx, rs)
		return err
	})
	switch {
	case err != nil && len(left) == 0:
		left = rs
	case err == nil && len(left) > 0:
		err = errors.New("the driver gave no reason")
	}
	return left, err
}

// names tells which resources, and nothing of what their driver noted.
func names(rs []driver.Resource) string {
	var all []string
	for _, r := range rs {
		all = append(all, r.Kind+" "+r.ID)
	}
	return strings.Join(all, ", ")
}

// abandon leaves the rest to the next process: nothing is swept here any more.
func (t *transaction) abandon(ctx context.Context) {
	select {
	case t.sweeping <- struct{}{}:
		t.settled = true
		t.journal.close()
		<-t.sweeping
	case <-ctx.Done():
	}
}

// guard calls a driver. One that panics has failed, and no more than that: its
// transaction still has to end.
func guard(log *zerolog.Logger, what string, call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the driver's %s panicked: %v", what, p)
			log.Error().Bytes("stack", debug.Stack()).Msg("the driver's " + what + " panicked")
		}
	}()
	return call()
}

// guard calls a driver for the stages as a whole.
func (m *Stages) guard(what string, call func() error) error { return guard(&m.log, what, call) }

// guard calls a driver for a transaction.
func (t *transaction) guard(ctx context.Context, what string, call func() error) error {
	log := logger.FromContext(ctx)
	if log.GetLevel() == zerolog.Disabled {
		log = &t.log
	}
	return guard(log, what, call)
}

// keep makes a transaction one that Tend tries to clean up again.
func (m *Stages) keep(t *transaction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stuck[t] = struct{}{}
}

// settle ends the attempts to clean up a transaction.
func (m *Stages) settle(t *transaction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.stuck, t)
}

// unfinished are the transactions whose cleanup is to be tried again.
func (m *Stages) unfinished() []*transaction {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*transaction
	for t := range m.stuck {
		all = append(all, t)
	}
	return all
}

// has says whether this process takes care of a record.
func (m *Stages) has(path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for t := range m.stuck {
		if t.journal.path == path {
			return true
		}
	}
	for id := range m.open {
		if m.ledger.path(id) == path {
			return true
		}
	}
	return false
}
