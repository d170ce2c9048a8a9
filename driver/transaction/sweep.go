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

// sweep removes the transaction's resources and then its record. Resources that
// cannot be removed stay in the record, and the transaction is swept again later.
// One sweep of a transaction runs at a time; others wait for it.
func (t *transaction) sweep(ctx context.Context) error {
	select {
	case t.sweepLock <- struct{}{}:
		defer func() { <-t.sweepLock }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for the cleanup of transaction %s: %w", t.env.ID, context.Cause(ctx))
	}
	if t.journal == nil || t.cleaned {
		return nil // without a record there are no resources
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	t.mu.Lock()
	resources := slices.Clone(t.resources)
	t.mu.Unlock()
	early := t.stages.now().Before(t.lateUntil)
	left, err := t.removeResources(ctx, resources)
	if early && err == nil {
		t.stages.addStuck(t) // once more, later
		return nil
	}
	t.mu.Lock()
	t.resources = left
	t.mu.Unlock()
	if len(left) == 0 && err == nil {
		err = t.journal.remove()
	}
	if len(left) == 0 && err == nil {
		t.cleaned = true
		t.stages.removeStuck(t)
		return nil
	}
	for _, r := range resources {
		if !slices.ContainsFunc(left, func(l driver.Resource) bool { return l.Kind == r.Kind && l.ID == r.ID }) {
			err = errors.Join(err, t.journal.append(entry{Gone: &r}, durable))
		}
	}
	t.stages.addStuck(t)
	return fmt.Errorf("cleaning up transaction %s: %w (left: %s)", t.env.ID, err, resourceNames(left))
}

// inFlight is how long after the death of a process an engine may still create
// resources for it. A resource that does not exist yet cannot be removed.
const inFlight = 10 * time.Second

// sweepByLabels removes resources that have the label of this ledger and belong to
// no open or recorded transaction.
func (s *Stages) sweepByLabels(ctx context.Context) error {
	finder, ok := s.driver.(driver.Finder)
	if !ok {
		return nil
	}
	if err := s.ledger.open(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	found, err := finder.Find(ctx, map[string]string{driver.LabelLedger: s.ledger.id})
	if err != nil {
		return fmt.Errorf("finding resources without a record: %w", err)
	}
	stray := slices.DeleteFunc(found, func(r driver.Resource) bool { return s.knowsTransaction(r.Labels[driver.LabelTransaction]) })
	if len(stray) == 0 {
		return nil
	}
	s.log.Warn().Str("resources", resourceNames(stray)).Msg("removing resources without a record")
	if err := s.guard("cleanup", func() error { _, err := s.driver.Cleanup(ctx, stray); return err }); err != nil {
		return fmt.Errorf("removing resources without a record: %w", err)
	}
	return nil
}

// knowsTransaction reports whether a transaction is open or recorded here.
func (s *Stages) knowsTransaction(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] != nil {
		return true
	}
	for t := range s.stuck {
		if t.env.ID == id {
			return true
		}
	}
	return false
}

// nextSweep returns when the next stuck transaction must be swept again, zero if
// there is none.
func (s *Stages) nextSweep() (at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.stuck {
		if at.IsZero() || t.lateUntil.Before(at) {
			at = t.lateUntil
		}
	}
	return at
}

// removeResources has the driver remove resources and returns the remaining ones.
// If the driver fails without naming them, all count as remaining.
func (t *transaction) removeResources(ctx context.Context, rs []driver.Resource) (left []driver.Resource, err error) {
	ctx, remarks := driver.WithRemarks(ctx)
	err = t.guard(ctx, "cleanup", func() error {
		left, err = t.stages.driver.Cleanup(ctx, rs)
		return err
	})
	t.mu.Lock()
	t.remarks = append(t.remarks, remarks()...)
	t.mu.Unlock()
	switch {
	case err != nil && len(left) == 0:
		left = rs
	case err == nil && len(left) > 0:
		err = errors.New("the driver gave no reason")
	}
	return left, err
}

// resourceNames lists kinds and ids, without the driver's data.
func resourceNames(rs []driver.Resource) string {
	var all []string
	for _, r := range rs {
		all = append(all, r.Kind+" "+r.ID)
	}
	return strings.Join(all, ", ")
}

// abandon leaves the remaining resources to the next process.
func (t *transaction) abandon(ctx context.Context) {
	select {
	case t.sweepLock <- struct{}{}:
		t.cleaned = true
		t.journal.close()
		<-t.sweepLock
	case <-ctx.Done():
	}
}

// guard calls a driver. A panic becomes an error, because the transaction must
// still be cleaned up.
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
func (s *Stages) guard(what string, call func() error) error { return guard(&s.log, what, call) }

// guard calls a driver for a transaction.
func (t *transaction) guard(ctx context.Context, what string, call func() error) error {
	log := logger.FromContext(ctx)
	if log.GetLevel() == zerolog.Disabled {
		log = &t.log
	}
	return guard(log, what, call)
}

// addStuck makes Maintain sweep a transaction again.
func (s *Stages) addStuck(t *transaction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck[t] = struct{}{}
}

// removeStuck ends the attempts to sweep a transaction.
func (s *Stages) removeStuck(t *transaction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stuck, t)
}

// unfinished returns the transactions that must be swept again.
func (s *Stages) unfinished() []*transaction {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*transaction
	for t := range s.stuck {
		all = append(all, t)
	}
	return all
}

// tracksRecord reports whether this process handles a record.
func (s *Stages) tracksRecord(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.stuck {
		if t.journal.path == path {
			return true
		}
	}
	for id := range s.open {
		if s.ledger.path(id) == path {
			return true
		}
	}
	return false
}
