package transaction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/stage"
)

// takeUp makes a transaction of an earlier process one of this process. It
// reports false when that cannot be, and the transaction is to be cleaned up.
func (m *Stages) takeUp(ctx context.Context, l leftover) bool {
	if !m.resume || !l.ready {
		return false
	}
	t, err := m.reopen(ctx, l)
	if err != nil {
		m.log.Warn().Str(logger.FieldTransaction, l.env.ID).Err(err).Msg("a transaction did not survive the restart of the delegate")
		return false
	}
	t.log.Info().Int("resources", len(l.resources)).Msg("taking up a transaction of an earlier process")
	return true
}

// reopen reads what there is to know about a transaction and follows its
// background steps further.
func (m *Stages) reopen(ctx context.Context, l leftover) (*transaction, error) {
	if !m.resumes() {
		return nil, m.whyNot()
	}
	if err := makePrivate(m.notesDir()); err != nil {
		return nil, err
	}
	path := m.notesPath(l.path)
	envs, exports, values, steps, err := readNotes(path)
	if err != nil {
		return nil, fmt.Errorf("what it has to know: %w", err)
	}
	t := m.newTransaction(l.env)
	t.journal, t.resources = reopen(l.path), l.resources
	t.env.Envs, t.exports = envs, exports
	t.lateUntil = l.written.Add(m.inFlight)
	t.secrets.Add(values...)
	t.resumed, t.earlier = true, steps
	for id, begun := range l.begun {
		s := steps[id]
		s.begun = begun
		steps[id] = s
	}
	if err := t.reopenNotes(path); err != nil {
		return nil, err
	}
	close(t.ready)
	for id, s := range steps {
		if s.background == nil {
			continue
		}
		if err := t.followFurther(ctx, id, s); err != nil {
			t.notes.remove()
			t.journal.close()
			t.end(errClosing)
			t.closeLogs(ctx)
			return nil, errors.New(t.secrets.Mask(fmt.Sprintf("its background step %q: %v", s.background.Step.ID, err)))
		}
	}
	t.slot = m.slots.Force()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[t.env.ID] = t
	return t, nil
}

// followFurther lets the output of a background step go on.
func (t *transaction) followFurther(ctx context.Context, id string, s earlier) error {
	ctx, stop := join(ctx, t.alive)
	defer stop()
	target := s.background.Log
	target.resume(s.writer)
	log := &lazyLog{open: func() Log { return t.stages.openLog(ctx, target) }}
	out := &maskedLog{Masker: secrets.NewMasker(log, t.secrets), log: log}
	t.keepLog(out)
	_, err := t.reattach(ctx, &execution{id: id, env: t.environment(), step: s.background.Step, out: out}, s.begun)
	return err
}

// reattach has the driver go on with what an earlier process began.
func (t *transaction) reattach(ctx context.Context, e *execution, begun []driver.Resource) (res *driver.Result, err error) {
	err = t.guard(ctx, "reattaching", func() error {
		res, err = t.stages.driver.(driver.Reattacher).Reattach(ctx, e.env, e.step, e.out, stepLedger{t, e.id}, begun)
		return err
	})
	return res, err
}

// resume makes a target one whose log began earlier: its stream is open, and its
// archive is what the stream has in the end, because nobody else has the
// beginning.
func (l *LogTarget) resume(writer string) {
	l.Writer, l.SkipOpeningStream = writer, true
}

// begunBefore is what is known of a step that an earlier process began. It can be
// asked for once: whatever happens to the step now, this process sees it.
func (t *transaction) begunBefore(id string) (earlier, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.earlier[id]
	delete(t.earlier, id)
	return s, ok && len(s.begun) > 0
}

// goOn follows a step that an earlier process began. It reports false when
// nothing of it has run.
func (t *transaction) goOn(ctx context.Context, e *execution, s earlier) bool {
	logger.FromContext(ctx).Info().Msg("going on with a step of an earlier process")
	target := e.target
	target.resume(s.writer)
	log := &lazyLog{open: func() Log { return t.stages.openLog(ctx, target) }}
	e.openLog(log)
	e.res, e.err = t.reattach(ctx, e, s.begun)
	if errors.Is(e.err, driver.ErrNotBegun) {
		return false
	}
	if log.log == nil { // what is said from here on is new
		target.Writer = ""
		log.log = log.open()
	}
	return true
}

// Disown cleans up the transactions that Recover has taken up and nobody has
// asked for: their manager has forgotten this delegate. It fits
// poller.WithDisowned.
func (m *Stages) CleanUpUnclaimed(ctx context.Context) {
	m.mu.Lock()
	var all []*transaction
	for _, t := range m.open {
		all = append(all, t)
	}
	m.mu.Unlock()
	all = slices.DeleteFunc(all, func(t *transaction) bool { _, resumed := t.idleSince(m.now()); return !resumed })
	var wg sync.WaitGroup
	for _, t := range all {
		wg.Go(func() {
			t.log.Warn().Msg("the manager does not know this delegate: cleaning up what an earlier process began")
			if err := t.close(ctx); err != nil {
				t.logCleanup(err)
			}
		})
	}
	wg.Wait()
}

// awaitSettled waits until nothing is left of an earlier transaction of that id.
func (m *Stages) awaitSettled(ctx context.Context, id string) error {
	for {
		t := m.stuckAs(id)
		if t == nil {
			return nil
		}
		wait := time.NewTimer(t.lateUntil.Sub(m.now()))
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

func (m *Stages) stuckAs(id string) *transaction {
	m.mu.Lock()
	defer m.mu.Unlock()
	for t := range m.stuck {
		if t.env.ID == id {
			return t
		}
	}
	return nil
}

// answered is a step's answer of before the restart, nil when there is none.
func (t *transaction) answered(id string) *stage.ExecuteResponse {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.earlier[id].answer
}
