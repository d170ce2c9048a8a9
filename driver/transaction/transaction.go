package transaction

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// errClosing is the cause that a step's context ends with when its transaction
// does.
var errClosing = errors.New("the transaction is being cleaned up")

// transaction is one stage on this delegate.
//
//	init: opening -> open -> closing -> gone
//	            \------------^
type transaction struct {
	stages  *Stages
	env     driver.Environment
	journal *journal       // set before ready is closed; nil when there is no record
	slot    *capacity.Slot // set before ready is closed; nil when nothing counts
	secrets *secrets.Set
	log     zerolog.Logger // for events outside of tasks; masked
	notes   *notes         // nil when nothing is kept for a later process

	alive context.Context //nolint:containedctx // ends when the transaction does, whoever called
	end   context.CancelCauseFunc
	ready chan struct{} // closed when the init has ended
	gone  chan struct{} // closed when the cleanup has ended

	services services

	sweeping chan struct{} // holds one: who removes resources now
	settled  bool          // by who is sweeping: nothing is left to remove here
	// lateUntil is how long what a killed process asked for may still come to be:
	// until then, removing it once is not enough.
	lateUntil time.Time

	mu        sync.Mutex
	resources []driver.Resource
	exports   map[string]string // what steps gave to later ones
	logs      []Log             // of detached steps
	ending    sync.WaitGroup    // logs that are closed behind answers
	running   int
	quiet     chan struct{} // closed while nothing runs
	touched   time.Time
	initErr   error // set before ready is closed
	closing   bool
	cleanErr  error // set before gone is closed
	noted     int   // how many secrets the notes hold
	// Of a transaction that an earlier process began.
	resumed bool               // and nobody has asked for yet
	earlier map[string]earlier // what is known of its steps, by task
}

func (m *Stages) newTransaction(env driver.Environment) *transaction {
	t := &transaction{
		stages: m, env: env, secrets: secrets.NewSet(secrets.Config{}), exports: map[string]string{},
		ready: make(chan struct{}), gone: make(chan struct{}), quiet: make(chan struct{}), touched: m.now(),
		sweeping: make(chan struct{}, 1),
	}
	close(t.quiet)
	t.log = logger.Masked(logger.Labels{Transaction: env.ID}.Apply(m.log), t.secrets)
	t.alive, t.end = context.WithCancelCause(context.Background())
	return t
}

// restore makes the transaction that a journal of an earlier process tells of.
// Nobody can reach it; it is there to be swept.
func (m *Stages) restore(l leftover) *transaction {
	t := m.newTransaction(l.env)
	t.journal, t.resources = reopen(l.path), l.resources
	t.lateUntil = l.written.Add(m.inFlight)
	t.end(errClosing)
	return t
}

// Record implements [driver.Ledger] for an init.
func (t *transaction) Record(ctx context.Context, r driver.Resource) error {
	return t.record(ctx, r, "")
}

// stepLedger is the ledger of a step.
type stepLedger struct {
	t    *transaction
	task string
}

// Record implements [driver.Ledger].
func (l stepLedger) Record(ctx context.Context, r driver.Resource) error {
	return l.t.record(ctx, r, l.task)
}

// record makes a resource durable, unless it is volatile: on the disk first, then
// in memory.
func (t *transaction) record(ctx context.Context, r driver.Resource, task string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.Kind == "" || r.ID == "" {
		return fmt.Errorf("recording a resource without kind or id: %q, %q", r.Kind, r.ID)
	}
	if err := t.journal.append(entry{Resource: &r, Task: task}, !r.Volatile); err != nil {
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
	t.touched, t.resumed = t.stages.now(), false
	return true
}

func (t *transaction) isClosing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closing
}

func (t *transaction) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touched = t.stages.now()
	if t.running--; t.running == 0 {
		close(t.quiet)
	}
}

// idleSince is how long nobody has touched the transaction, and whether nobody
// has since it was taken up; a running step touches it all the time.
func (t *transaction) idleSince(now time.Time) (idle time.Duration, resumed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running > 0 || t.closing {
		return 0, false
	}
	return now.Sub(t.touched), t.resumed
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

// withLogger returns ctx with the logger of a task of the transaction. It has the
// labels of the stage and step and is masked with the secrets of the transaction
// (rules L1, S3). If ctx has no logger, it writes to the log of the stages.
func (t *transaction) withLogger(ctx context.Context, stageID, step string) context.Context {
	log := *logger.FromContext(ctx)
	if log.GetLevel() == zerolog.Disabled {
		log = t.stages.log
	}
	labels := logger.Labels{Transaction: t.env.ID, Stage: stageID, Step: step}
	return logger.NewContext(ctx, labels.Apply(logger.Masked(log, t.secrets)))
}

// hide keeps values, the secrets of the task that is handled in ctx, and what it
// wants to have masked (PROTOCOL 2), out of everything that leaves the transaction
// as text.
func (t *transaction) hide(ctx context.Context, values ...string) {
	t.secrets.Include(secrets.FromContext(ctx))
	if tk, ok := task.FromContext(ctx); ok && tk.Logger != nil {
		t.secrets.Add(tk.Logger.Masks...)
	}
	t.secrets.Add(values...)
}

func (t *transaction) export(vars map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.Copy(t.exports, vars)
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
	if t.slot != nil {
		t.slot.Release() // the logs may take a while
	}
	t.notes.remove()
	t.closeLogs(context.WithoutCancel(ctx))
	t.stages.remove(t)
	close(t.gone)
	return t.cleanErr
}

// remove forgets an ended transaction.
func (m *Stages) remove(t *transaction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open[t.env.ID] == t {
		delete(m.open, t.env.ID)
	}
	m.blockIDs(t.env.ID)
}
