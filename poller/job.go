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

// overrun is how long a handler may run after its context has ended. Then the
// poller answers for it.
const overrun = 5 * time.Second

// runJob acquires a task, runs its handler and delivers the answer.
func (s *session) runJob(j *job) {
	id := s.delegateID() // the answer goes where the task was acquired
	if j.previous != nil {
		s.resumeJob(j, id)
		return
	}
	s.recordTaken(taken{Event: j.event, Delegate: id})
	t, err := s.client.Acquire(s.work, id, j.event)
	switch {
	case errors.Is(err, client.ErrMalformed):
		// The task belongs to this delegate now. Without an answer its stage waits for a time-out.
		s.answerUnreadable(j, id, err)
		return
	case err != nil || t == nil:
		s.acquireFailed(j, err)
		return
	}
	s.acquired(j, id, t)
}

// acquired continues with a task that belongs to this delegate now.
func (s *session) acquired(j *job, id string, t *task.Task) {
	complete(t, j.event)
	s.counters.acquired.Add(1)
	s.recordTaken(taken{Event: j.event, Delegate: id, Acquired: true, RunnerResponse: t.RunnerResponse})
	s.handle(j, id, t)
}

// answerUnreadable answers a task that the manager gave to this delegate and that
// could not be decoded.
func (s *session) answerUnreadable(j *job, id string, err error) {
	s.answerFailed(j, id, fmt.Errorf("the delegate could not read the task: %w", err))
}

// answerFailed answers a task that no handler gets.
func (s *session) answerFailed(j *job, id string, why error) {
	t := &task.Task{ID: j.event.TaskID, Type: j.event.TaskType, RunnerResponse: j.previous != nil && j.previous.RunnerResponse}
	s.releaseJob(j)
	s.deliver(s.work, id, t, failure(t, task.Failed, why))
	s.table.finish(j, time.Now())
}

// acquireFailed leaves a task with the manager that could not be acquired.
func (s *session) acquireFailed(j *job, err error) {
	s.counters.missed.Add(1)
	switch {
	case s.work.Err() != nil:
	case errors.Is(err, client.ErrUnauthorized):
		s.lost.report(err)
	case err != nil && !errors.Is(err, client.ErrGone) && !errors.Is(err, client.ErrConflict):
		s.taskLog(j.event.TaskID, j.event.TaskType).Warn().Err(err).Msg("cannot acquire a task")
	}
	s.releaseJob(j)
	noAnswer := errors.Is(err, client.ErrRetryable)
	if s.work.Err() == nil && !noAnswer { // else it may be ours: the next process acquires it again
		s.dropTaken(j.event.TaskID)
	}
	s.table.putBack(j, noAnswer, time.Now().Add(max(s.interval, time.Second)))
}

// releaseJob frees the executor of a job, and its slot unless a transaction keeps
// it. A pending delivery needs neither (rule C3).
func (s *session) releaseJob(j *job) {
	s.table.releaseExecutor(j)
	if j.slot != nil {
		j.slot.Drop()
	}
}

// complete fills in members that the manager left out of a task, from its event.
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

// handle runs the handler of a task and delivers the answer. If the handler still
// runs some time after its context has ended, handle answers for it. The executor
// stays occupied until the handler returns, because its work continues until then.
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
	s.table.setAbort(j, cancel)

	var once sync.Once
	answer := func(r *task.Response) { once.Do(func() { s.deliver(ctx, id, t, r) }) }
	returned, watched := make(chan struct{}), make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(watched)
		if outlasts(returned, s.overrun) {
			answer(s.overrunResponse(ctx, t))
		}
	})
	resp, stack := task.Serve(ctx, s.router, t)
	close(returned)
	s.releaseJob(j)
	if stack != nil {
		s.taskLog(t.ID, t.Type).Error().Bytes("stack", stack).Msg(resp.Error)
	}
	if !unwatch() {
		<-watched
	}
	answer(addCause(ctx, resp))
	s.table.finish(j, time.Now())
	s.pollSoon()
}

// taskLog returns the delegate's log with the labels of a task.
func (s *session) taskLog(id, taskType string) *zerolog.Logger {
	l := logger.Labels{Task: id, TaskType: taskType}.Apply(s.log)
	return &l
}

// outlasts waits for done or for d. It reports whether d passed first.
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

// addCause adds to a failed response the cause with which the context of its
// handler ended, which the handler may not know.
func addCause(ctx context.Context, r *task.Response) *task.Response {
	if r.Code != task.OK && ctx.Err() != nil {
		r.Error = fmt.Sprintf("%s (%v)", r.Error, context.Cause(ctx))
	}
	return r
}

// overrunResponse is the answer for a handler that does not return.
func (s *session) overrunResponse(ctx context.Context, t *task.Task) *task.Response {
	code := task.Failed
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = task.Timeout
	}
	return failure(t, code, fmt.Errorf("%w, and the handler has not returned %s later", context.Cause(ctx), s.overrun))
}

// pollSoon ends the pause between polls: the next task may be pending.
func (s *session) pollSoon() {
	wakeUp(s.pollNow)
}
