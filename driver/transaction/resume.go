package transaction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/sealed"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/secrets"
)

// resumeTransaction opens a transaction of an earlier process in this one. It
// reports false if that is impossible and the transaction must be cleaned up.
func (s *Stages) resumeTransaction(ctx context.Context, l openRecord) bool {
	if !s.resume || !l.ready {
		return false
	}
	t, err := s.reopen(ctx, l)
	if err != nil {
		s.log.Warn().Str("transaction", l.env.ID).Err(err).Msg("cannot resume a transaction of an earlier process: cleaning up")
		return false
	}
	t.log.Info().Int("resources", len(l.resources)).Msg("resuming a transaction of an earlier process")
	return true
}

// reopen reads the state of a transaction and follows its background steps.
func (s *Stages) reopen(ctx context.Context, l openRecord) (*transaction, error) {
	if !s.canResume() {
		return nil, s.resumeProblem()
	}
	if err := sealed.MakePrivate(s.notesDir()); err != nil {
		return nil, err
	}
	key, err := s.ledger.noteCipher()
	if err != nil {
		return nil, err
	}
	path := s.notesPath(l.path)
	all, steps, err := readNotes(path, key)
	if err != nil {
		return nil, fmt.Errorf("reading its notes: %w", err)
	}
	t := s.newTransaction(l.env)
	t.journal, t.resources = reopen(l.path), l.resources
	t.env.Envs, t.exports, t.logConfig = all.Envs, all.Exports, all.Log
	t.lateUntil = l.written.Add(s.inFlight)
	t.secrets.Add(all.Secrets...)
	t.resumed, t.earlier = true, steps
	for id, begun := range l.begun {
		earlier := steps[id]
		earlier.begun = begun
		steps[id] = earlier
	}
	if err := t.reopenNotes(path, key); err != nil {
		return nil, err
	}
	close(t.ready)
	for id, earlier := range steps {
		if earlier.background == nil {
			continue
		}
		if err := t.followBackground(ctx, id, earlier); err != nil {
			t.notes.remove()
			t.journal.close()
			t.end(errClosing)
			t.closeLogs(ctx)
			return nil, errors.New(t.secrets.Mask(fmt.Sprintf("its background step %q: %v", earlier.background.Step.ID, err)))
		}
	}
	t.slot = s.slots.Force()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[t.env.ID] = t
	return t, nil
}

// followBackground continues the output of a background step.
func (t *transaction) followBackground(ctx context.Context, id string, s earlier) error {
	ctx, stop := join(ctx, t.alive)
	defer stop()
	target := s.background.Log
	target.resume(s.writer)
	log := &lazyLog{open: func() logger.TaskLog { return t.stages.openLog(ctx, target.stream()) }}
	out := &maskedLog{Masker: secrets.NewMasker(log, t.secrets), log: log}
	t.keepLog(out)
	_, err := t.reattach(ctx, &execution{id: id, env: t.environment(), step: s.background.Step, out: out}, s.begun)
	return err
}

// reattach has the driver continue with a step of an earlier process.
func (t *transaction) reattach(ctx context.Context, e *execution, begun []driver.Resource) (res *driver.Result, err error) {
	err = t.guard(ctx, "reattaching", func() error {
		res, err = t.stages.driver.(driver.Reattacher).Reattach(ctx, e.env, e.step, e.out, stepLedger{t, e.id}, begun)
		return err
	})
	return res, err
}

// resume makes l the target of a log that began earlier. Its stream is open, and
// its archive is made of the stream, because only the stream has the beginning.
func (l *logTarget) resume(writer string) {
	l.Writer, l.SkipOpeningStream = writer, true
}

// takeEarlierStep returns the state of a step that an earlier process began. It
// returns the state only once, because this process then runs or follows the step.
func (t *transaction) takeEarlierStep(id string) (earlier, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.earlier[id]
	delete(t.earlier, id)
	return s, ok && len(s.begun) > 0
}

// followStep follows a step that an earlier process began. It reports false if
// nothing of the step has run.
func (t *transaction) followStep(ctx context.Context, e *execution, s earlier) bool {
	logger.FromContext(ctx).Info().Msg("continuing with a step of an earlier process")
	e.err = t.continueStep(ctx, e, s)
	return !errors.Is(e.err, driver.ErrNotBegun)
}

// continueStep has the driver continue with a step, and continues its log.
func (t *transaction) continueStep(ctx context.Context, e *execution, s earlier) (err error) {
	target := e.target
	target.resume(s.writer)
	log := &lazyLog{open: func() logger.TaskLog { return t.stages.openLog(ctx, target.stream()) }}
	e.openLog(log)
	e.res, err = t.reattach(ctx, e, s.begun)
	if log.log == nil && !errors.Is(err, driver.ErrNotBegun) { // the text from here on is new
		target.Writer = ""
		log.log = log.open()
	}
	return err
}

// CleanUpUnclaimed cleans up the transactions that Recover has resumed and for
// which no task has come: their manager has forgotten this delegate. The poller
// calls it.
func (s *Stages) CleanUpUnclaimed(ctx context.Context) {
	s.mu.Lock()
	var all []*transaction
	for _, t := range s.open {
		all = append(all, t)
	}
	s.mu.Unlock()
	all = slices.DeleteFunc(all, func(t *transaction) bool { _, resumed := t.idleSince(s.now()); return !resumed })
	var wg sync.WaitGroup
	for _, t := range all {
		wg.Go(func() {
			t.log.Warn().Msg("the manager does not know this delegate: cleaning up a transaction of an earlier process")
			if err := t.close(ctx); err != nil {
				t.logCleanup(err)
			}
		})
	}
	wg.Wait()
}

// awaitCleanup waits until all resources of an earlier transaction with that id
// are removed.
func (s *Stages) awaitCleanup(ctx context.Context, id string) error {
	for {
		t := s.stuckByID(id)
		if t == nil {
			return nil
		}
		wait := time.NewTimer(t.lateUntil.Sub(s.now()))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return context.Cause(ctx)
		}
		if err := t.sweep(ctx); err != nil {
			return err
		}
	}
}

func (s *Stages) stuckByID(id string) *transaction {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.stuck {
		if t.env.ID == id {
			return t
		}
	}
	return nil
}

// earlierAnswer returns the state of a step that has an answer of the earlier process. It
// returns the state without an answer if there is none.
func (t *transaction) earlierAnswer(id string) earlier {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.earlier[id]
	if s.answer != nil { // another delivery of the answer finds the log at its end
		ended := s
		ended.logEnded = true
		t.earlier[id] = ended
	}
	return s
}
