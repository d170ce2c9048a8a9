package poller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/rs/zerolog"
)

// overrun is how long a handler may take to return after its context has ended.
// Then the poller answers for it.
const overrun = 5 * time.Second

// do is a task's life on this delegate: acquire, handle, answer.
func (s *session) do(j *job) {
	id := s.delegateID() // the answer goes where the task was acquired
	if j.owed != nil {
		s.takeUp(j, id)
		return
	}
	s.keep(taken{Event: j.event, Delegate: id})
	t, err := s.client.Acquire(s.work, id, j.event)
	switch {
	case errors.Is(err, client.ErrMalformed):
		// It is ours now, whatever it was: say so, or its stage waits for a time-out.
		s.unreadable(j, id, err)
		return
	case err != nil || t == nil:
		s.missed(j, err)
		return
	}
	s.acquired(j, id, t)
}

// acquired goes on with a task that is ours now.
func (s *session) acquired(j *job, id string, t *task.Task) {
	complete(t, j.event)
	s.counters.acquired.Add(1)
	s.keep(taken{Event: j.event, Delegate: id, Acquired: true, RunnerResponse: t.RunnerResponse})
	s.handle(j, id, t)
}

// unreadable answers for a task that the manager gave away and that did not
// arrive in one piece.
func (s *session) unreadable(j *job, id string, err error) {
	s.fail(j, id, fmt.Errorf("the delegate could not read the task: %w", err))
}

// fail answers for a task that no handler sees.
func (s *session) fail(j *job, id string, why error) {
	t := &task.Task{ID: j.event.TaskID, Type: j.event.TaskType, RunnerResponse: j.owed != nil && j.owed.RunnerResponse}
	s.vacate(j)
	s.deliver(s.work, id, t, task.Fail(t, task.Failed, why))
	s.board.done(j, time.Now())
}

// missed leaves alone a task that was not to be had.
func (s *session) missed(j *job, err error) {
	s.counters.missed.Add(1)
	switch {
	case s.work.Err() != nil:
	case errors.Is(err, client.ErrUnauthorized):
		s.lost.report(err)
	case err != nil && !errors.Is(err, client.ErrGone) && !errors.Is(err, client.ErrConflict):
		s.taskLog(j.event.TaskID, j.event.TaskType).Warn().Err(err).Msg("cannot acquire a task")
	}
	s.vacate(j)
	unanswered := errors.Is(err, client.ErrRetryable)
	if s.work.Err() == nil && !unanswered { // otherwise it may be ours, and the next process asks again
		s.forget(j.event.TaskID)
	}
	s.board.missed(j, unanswered, time.Now().Add(max(s.interval, time.Second)))
}

// vacate ends a job's hold on the executor and, unless somebody keeps it, on the
// slot: an answer under way needs neither (SPEC C3).
func (s *session) vacate(j *job) {
	s.board.vacate(j)
	if j.slot != nil {
		j.slot.Drop()
	}
}

// complete fills in what a manager may leave out of a task, because its event
// said it.
func complete(t *task.Task, e task.Event) {
	if t.ID == "" {
		t.ID = e.TaskID
	}
	if t.Type == "" {
		t.Type = e.TaskType
	}
	if t.Account == "" {
		t.Account = e.Account
	}
}

// handle runs the handler and answers with what it did. A handler that outstays
// its context is answered for; its place in the lane stays taken until it
// returns, because its work goes on until then.
func (s *session) handle(j *job, id string, t *task.Task) {
	ctx, cancel := context.WithCancelCause(s.work)
	defer cancel(nil)
	if t.Timeout > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, t.Timeout.Duration())
		defer end()
	}
	if j.slot != nil {
		ctx = capacity.NewContext(ctx, j.slot)
	}
	ctx = logger.NewContext(ctx, logger.Labels{Account: t.Account, Task: t.ID, TaskType: t.Type}.Apply(s.log))
	ctx = logger.ContextWithLabels(ctx, logger.Labels{Delegate: s.name})
	s.board.start(j, cancel)

	var once sync.Once
	answer := func(r *task.Response) { once.Do(func() { s.deliver(ctx, id, t, r) }) }
	returned, watched := make(chan struct{}), make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(watched)
		if outlasts(returned, s.overrun) {
			answer(s.overdue(ctx, t))
		}
	})
	resp, stack := task.Serve(ctx, s.router, t)
	close(returned)
	s.vacate(j)
	if stack != nil {
		s.taskLog(t.ID, t.Type).Error().Bytes("stack", stack).Msg(resp.Error)
	}
	if !unwatch() {
		<-watched
	}
	answer(judge(ctx, resp))
	s.board.done(j, time.Now())
	s.poke()
}

// taskLog returns the delegate's log with the labels of a task.
func (s *session) taskLog(id, taskType string) *zerolog.Logger {
	l := logger.Labels{Task: id, TaskType: taskType}.Apply(s.log)
	return &l
}

// outlasts waits for a channel to be closed and says whether d passed first.
func outlasts(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return false
	case <-t.C:
		return true
	}
}

// judge adds to a failed response what the handler could not know: that it
// failed because its context was ended.
func judge(ctx context.Context, r *task.Response) *task.Response {
	if r.Code != task.OK && ctx.Err() != nil {
		r.Error = fmt.Sprintf("%s (%v)", r.Error, context.Cause(ctx))
	}
	return r
}

// overdue answers for a handler that does not return.
func (s *session) overdue(ctx context.Context, t *task.Task) *task.Response {
	code := task.Failed
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = task.Timeout
	}
	return task.Fail(t, code, fmt.Errorf("%w, and the handler has not returned %s later", context.Cause(ctx), s.overrun))
}

// poke makes a plain manager be polled at once: the next task may be there.
func (s *session) poke() {
	wakeUp(s.nudge)
}
