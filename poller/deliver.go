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

// deliverAtLeast is the minimum time for the delivery of an answer, also if the
// deadline of its task is near or over: a TIMEOUT must be delivered too.
const deliverAtLeast = time.Minute

// deliver sends an answer to the manager, at least once (rule C3). The client
// retries temporary errors. deliver handles errors that only the poller can handle: a new
// delegate id, a registration that is lost, and an answer that is too large. It
// ends when the manager has the answer, when the task's deadline has passed or
// when the grace of the shutdown has ended. An answer that a slow handler gives
// after the grace gets finalCallTimeout more.
//
// An answer with the code [task.AnsweredElsewhere] is not delivered.
func (s *session) deliver(work context.Context, id string, t *task.Task, r *task.Response) {
	if r.Code == task.AnsweredElsewhere {
		s.dropTaken(t.ID)
		return
	}
	ctx := s.delivery
	if s.work.Err() != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(context.WithoutCancel(ctx), finalCallTimeout)
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
			s.dropTaken(t.ID)
			return
		case ctx.Err() != nil:
			s.counters.undelivered.Add(1)
			failed(log.Error(), err, "the delivery of an answer was given up")
			return
		case errors.Is(err, client.ErrTooLarge):
			if len(r.Data) == 0 && len(r.Error) <= maxReason {
				s.counters.undelivered.Add(1)
				failed(log.Error(), err, "the manager refuses even the shortest answer")
				s.dropTaken(t.ID)
				return
			}
			r = failure(t, task.Failed, fmt.Errorf("the answer could not be sent: %w", err))
		case errors.Is(err, client.ErrUnauthorized):
			failed(log.Warn(), err, "cannot deliver an answer: the manager does not know the delegate")
			s.lost.report(err)
			wait.pause(ctx)
		case errors.Is(err, client.ErrGone) && id != current:
			id, moved = current, true // the delegate has a new id
		case errors.Is(err, client.ErrGone) && s.lost.reason() != nil:
			wait.pause(ctx) // after the next registration it may know the task
		default:
			s.counters.undelivered.Add(1)
			failed(log.Error(), err, "the manager rejects an answer")
			s.dropTaken(t.ID)
			if s.stages != nil && moved && errors.Is(err, client.ErrGone) {
				s.stages.CleanUpForgotten(ctx, t)
			}
			return
		}
	}
}

// maxReason is the length of an error text that every manager accepts, in bytes.
const maxReason = 16 << 10

// later returns the later one of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// failure returns a response without data whose reason is err.
func failure(t *task.Task, code task.Code, err error) *task.Response {
	return &task.Response{ID: t.ID, Type: t.Type, Code: code, Error: err.Error()}
}
