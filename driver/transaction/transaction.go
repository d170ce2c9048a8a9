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
	"github.com/delegate-io/dlite/task/stage"
)

// errClosing is the cause with which the context of a step ends when its
// transaction is cleaned up.
var errClosing = errors.New("the transaction is being cleaned up")

// transaction is one stage on this delegate.
//
//	init: opening -> open -> closing -> closed
//	\------------^
type transaction struct {
	stages  *Stages
	env     driver.Environment
	journal *journal       // set before ready is closed; nil without a record
	slot    *capacity.Slot // set before ready is closed
	// logConfig is the log service of the init, for steps that name none. It has a token, so it must
	// not be written to a disk.
	logConfig *stage.LogConfig
	secrets   *secrets.Set
	log       zerolog.Logger // for events outside of tasks; masked
	notes     *notes         // nil if the transaction cannot be resumed

	alive context.Context //nolint:containedctx // ends with the transaction
	end   context.CancelCauseFunc
	ready chan struct{} // closed when the init has ended
	gone  chan struct{} // closed when the cleanup has ended
	began time.Time     // when the init began; for people

	services services

	remarks   []string      // of the driver's cleanups; guarded by mu
	sweepLock chan struct{} // holds one element while resources are removed
	cleaned   bool          // guarded by sweepLock: no resource is left
	// Until lateUntil an engine may still create resources for a killed process, so
	// removing them once is not enough.
	lateUntil time.Time

	mu          sync.Mutex
	resources   []driver.Resource
	exports     map[string]string // variables that steps export to later ones
	logs        []logger.TaskLog  // of detached steps
	closingLogs sync.WaitGroup    // logs that are closed after the answer
	running     int
	quiet       chan struct{} // closed while no step runs
	touched     time.Time
	initErr     error // set before ready is closed
	closing     bool
	cleanErr    error // set before gone is closed
	noted       int   // number of secrets in the notes
	// Only of a resumed transaction.
	resumed bool               // and no task has come for it yet
	earlier map[string]earlier // its steps in the earlier process, by task
}

// newTransaction returns a transaction without a record.
func (s *Stages) newTransaction(env driver.Environment) *transaction {
	t := &transaction{
		stages: s, env: env, secrets: secrets.NewSet(s.masks), exports: map[string]string{},
		ready: make(chan struct{}), gone: make(chan struct{}), quiet: make(chan struct{}), touched: s.now(),
		sweepLock: make(chan struct{}, 1),
	}
	close(t.quiet)
	t.log = logger.Masked(logger.Labels{Transaction: env.ID}.Apply(s.log), t.secrets)
	t.alive, t.end = context.WithCancelCause(context.Background())
	return t
}

// restore returns the transaction that a record of an earlier process describes.
// No task can reach it: its resources only have to be removed.
func (s *Stages) restore(l openRecord) *transaction {
	t := s.newTransaction(l.env)
	t.journal, t.resources = reopen(l.path), l.resources
	t.lateUntil = l.written.Add(s.inFlight)
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

// beginUse begins a step. It reports false if the transaction is ending.
func (t *transaction) beginUse() bool {
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

func (t *transaction) endUse() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touched = t.stages.now()
	if t.running--; t.running == 0 {
		close(t.quiet)
	}
}

// idleSince returns how long the transaction has had no activity, and whether it
// is a resumed one for which no task has come. A running step counts as activity.
func (t *transaction) idleSince(now time.Time) (idle time.Duration, resumed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running > 0 || t.closing {
		return 0, false
	}
	return now.Sub(t.touched), t.resumed
}

// variables returns the variables that the transaction adds to the environment of a step: the
// variables of the init, then the exports of earlier steps.
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

// addSecrets masks values in all text that leaves the transaction. It also masks the secrets
// of the task in ctx, and the texts in the task's list of masks (docs/protocol.md, section 2).
func (t *transaction) addSecrets(ctx context.Context, values ...string) {
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

// close ends the transaction once: it stops running steps and removes the
// resources. A later call waits for the first one and returns its error. The
// cleanup continues when ctx ends, because every transaction must be cleaned up.
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
		t.slot.Release() // before the logs, which may take long
	}
	t.notes.remove()
	t.closeLogs(context.WithoutCancel(ctx))
	t.stages.remove(t)
	close(t.gone)
	return t.cleanErr
}

// remove forgets an ended transaction.
func (s *Stages) remove(t *transaction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[t.env.ID] == t {
		delete(s.open, t.env.ID)
	}
	s.blockIDs(t.env.ID)
}
