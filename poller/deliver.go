package poller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/task"
	"github.com/rs/zerolog"
)

// deliverAtLeast is how long an answer is tried when its task's deadline is near
// or over: a TIMEOUT is worth delivering too.
const deliverAtLeast = time.Minute

// deliver brings an answer to the manager, at least once: it goes on until the
// manager has it, the task's deadline has passed or the shutdown's grace has
// ended (SPEC C3). A handler may take long to stop, so an answer that comes after
// the grace has finalCalls of its own.
//
// What somebody else answers is not ours to deliver.
func (s *session) deliver(work context.Context, id string, t *task.Task, r *task.Response) {
	if r.Code == task.AnsweredElsewhere {
		s.forget(t.ID)
		return
	}
	ctx := s.delivery
	if s.work.Err() != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(context.WithoutCancel(ctx), finalCalls)
		defer stop()
	} else if end, ok := work.Deadline(); ok {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, later(end, time.Now().Add(deliverAtLeast)))
		defer stop()
	}
	log := s.taskLog(t.ID, t.Type)
	failed := func(e *zerolog.Event, err error, what string) { e.Err(err).Str("code", string(r.Code)).Msg(what) }
	wait, moved := newBackOff(shortestPause, longestPause), false
	for {
		err := s.client.Respond(ctx, id, t, r)
		switch current := s.delegateID(); {
		case err == nil:
			s.counters.answered(r.Code)
			s.forget(t.ID)
			return
		case ctx.Err() != nil:
			s.counters.undelivered.Add(1)
			failed(log.Error(), err, "gave up delivering an answer")
			return
		case errors.Is(err, client.ErrTooLarge):
			if len(r.Data) == 0 && len(r.Error) <= maxReason {
				s.counters.undelivered.Add(1)
				failed(log.Error(), err, "the manager refuses an answer of any size")
				s.forget(t.ID)
				return
			}
			r = task.Fail(t, task.Failed, fmt.Errorf("the answer could not be sent: %w", err))
		case errors.Is(err, client.ErrUnauthorized):
			failed(log.Warn(), err, "could not deliver an answer")
			s.lost.report(err)
			wait.pause(ctx)
		case errors.Is(err, client.ErrGone) && id != current:
			id, moved = current, true // the manager knows us by another id by now
		case errors.Is(err, client.ErrGone) && s.lost.reason() != nil:
			wait.pause(ctx) // it may know the task once it knows us again
		case errors.Is(err, client.ErrRetryable):
			wait.pause(ctx)
		default:
			s.counters.undelivered.Add(1)
			failed(log.Error(), err, "the manager does not take an answer")
			s.forget(t.ID)
			if s.stages != nil && moved && errors.Is(err, client.ErrGone) {
				s.stages.CleanUpForgotten(ctx, t)
			}
			return
		}
	}
}

// maxReason is a length that every manager takes.
const maxReason = 16 << 10

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
