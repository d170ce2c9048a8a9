package transaction

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/capacity"
)

// The causes that a step's context ends with when its transaction does.
var errClosing = errors.New("the transaction is being cleaned up")

// transaction is one stage on this delegate.
//
//	init: opening -> open -> closing -> gone
//	            \------------^
type transaction struct {
	manager *Manager
	env     driver.Environment
	journal *journal       // set before ready is closed; nil when there is no record
	slot    *capacity.Slot // set before ready is closed; nil when nothing counts
	secrets *secrets.Set

	alive context.Context //nolint:containedctx // ends when the transaction does, whoever called
	end   context.CancelCauseFunc
	ready chan struct{} // closed when the init has ended
	gone  chan struct{} // closed when the cleanup has ended

	mu        sync.Mutex
	resources []driver.Resource
	exports   map[string]string // what steps gave to later ones
	logs      []Log             // of detached steps
	running   int
	quiet     chan struct{} // closed while nothing runs
	touched   time.Time
	initErr   error // set before ready is closed
	closing   bool
	cleanErr  error // set before gone is closed
}

func (m *Manager) newTransaction(env driver.Environment) *transaction {
	t := &transaction{
		manager: m, env: env, secrets: secrets.NewSet(secrets.Config{}), exports: map[string]string{},
		ready: make(chan struct{}), gone: make(chan struct{}), quiet: make(chan struct{}), touched: m.now(),
	}
	close(t.quiet)
	t.alive, t.end = context.WithCancelCause(context.Background())
	return t
}

// restore makes the transaction that a journal of an earlier process tells of.
// Nobody can reach it; it is there to be swept.
func (m *Manager) restore(l leftover) *transaction {
	t := m.newTransaction(l.env)
	t.journal, t.resources = reopen(l.path), l.resources
	t.end(errClosing)
	return t
}

// Record implements [driver.Ledger]: on the disk first, then in memory.
func (t *transaction) Record(ctx context.Context, r driver.Resource) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.Kind == "" || r.ID == "" {
		return fmt.Errorf("recording a resource without kind or id: %+v", r)
	}
	if err := t.journal.append(entry{Resource: &r}); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.resources, func(o driver.Resource) bool { return o.Kind == r.Kind && o.ID == r.ID })
	if i < 0 {
		t.resources = append(t.resources, r)
	} else {
		t.resources[i] = r
	}
	return nil
}

// enter begins a step, unless the transaction is ending.
func (t *transaction) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return false
	}
	if t.running == 0 {
		t.quiet = make(chan struct{})
	}
	t.running++
	t.touched = t.manager.now()
	return true
}

func (t *transaction) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touched = t.manager.now()
	if t.running--; t.running == 0 {
		close(t.quiet)
	}
}

// idleSince is how long nobody has touched the transaction; a running step
// touches it all the time.
func (t *transaction) idleSince(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running > 0 || t.closing {
		return 0
	}
	return now.Sub(t.touched)
}

// variables are what the transaction adds to a step's environment: what the init
// said, then what earlier steps exported.
func (t *transaction) variables() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := maps.Clone(t.env.Envs)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, t.exports)
	return all
}

func (t *transaction) export(vars map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.Copy(t.exports, vars)
}

// keepLog leaves a detached step's log open until the transaction ends.
func (t *transaction) keepLog(l Log) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logs = append(t.logs, l)
}

// close ends the transaction, once: it stops what runs and removes what was
// made. Called again, it waits for the first call and returns the same. It goes
// on when ctx ends: a cleanup is a promise.
func (t *transaction) close(ctx context.Context) error {
	t.mu.Lock()
	first := !t.closing
	t.closing = true
	quiet := t.quiet
	t.mu.Unlock()
	if !first {
		select {
		case <-t.gone:
			return t.cleanErr
		case <-ctx.Done():
			return fmt.Errorf("waiting for the cleanup of transaction %s: %w", t.env.ID, context.Cause(ctx))
		}
	}
	t.end(errClosing)
	<-t.ready
	<-quiet
	t.cleanErr = t.sweep(context.WithoutCancel(ctx))
	t.closeLogs(context.WithoutCancel(ctx))
	t.manager.remove(t)
	close(t.gone)
	return t.cleanErr
}

// sweep removes the transaction's resources and then its record. What would not
// go stays on record, and the transaction joins those that Tend tries again.
func (t *transaction) sweep(ctx context.Context) error {
	if t.journal == nil {
		return nil // without a record nothing was made
	}
	ctx, cancel := context.WithTimeout(ctx, t.manager.cleanup)
	defer cancel()
	t.mu.Lock()
	resources := slices.Clone(t.resources)
	t.mu.Unlock()
	left, err := t.manager.driver.Cleanup(ctx, resources)
	t.mu.Lock()
	t.resources = left
	t.mu.Unlock()
	if len(left) == 0 && err == nil {
		return t.journal.remove()
	}
	for _, r := range resources {
		if !slices.ContainsFunc(left, func(l driver.Resource) bool { return l.Kind == r.Kind && l.ID == r.ID }) {
			err = errors.Join(err, t.journal.append(entry{Gone: &r}))
		}
	}
	t.manager.mu.Lock()
	t.manager.stuck = append(t.manager.stuck, t)
	t.manager.mu.Unlock()
	names, _ := json.Marshal(left) // plain structs
	return fmt.Errorf("cleaning up transaction %s: %w (left: %s)", t.env.ID, err, names)
}

func (t *transaction) closeLogs(ctx context.Context) {
	t.mu.Lock()
	logs := t.logs
	t.logs = nil
	t.mu.Unlock()
	for _, l := range logs {
		if err := l.Close(ctx); err != nil {
			t.manager.log.Warn().Err(err).Str("transaction", t.env.ID).Msg("a log is not complete")
		}
	}
}

// remove forgets an ended transaction and gives its slot back.
func (m *Manager) remove(t *transaction) {
	m.mu.Lock()
	if m.open[t.env.ID] == t {
		delete(m.open, t.env.ID)
	}
	m.bar(t.env.ID)
	m.mu.Unlock()
	if t.slot != nil {
		t.slot.Release()
	}
}
