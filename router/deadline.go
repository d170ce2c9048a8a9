package router

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/delegate-io/dlite/internal/answers"
	"github.com/delegate-io/dlite/task"
)

// Deadline ends the request's context when the time of the task is up: after the
// shorter one of the task's own time-out and most (rules P4, R3). With most 0 only
// the task's own time-out counts. A task without one, or with a negative one, then
// has no bound. Deadline panics when most is negative.
//
// The poller enforces a task's own time-out in any case. Deadline adds a shorter
// bound, and serves routers that run under a plain HTTP server.
//
// A handler that fails after its time is up, or that wrote nothing, is answered
// TIMEOUT. A late success stays a success. The handler must watch its context: Go
// cannot end a handler that does not.
func Deadline(most time.Duration) Middleware {
	if most < 0 {
		panic(fmt.Sprintf("router: a deadline of %s", most))
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			limit := most
			if t, ok := task.FromContext(r.Context()); ok && t.Timeout > 0 {
				if own := t.Timeout.Duration(); limit == 0 || own < limit {
					limit = own
				}
			}
			if limit == 0 {
				next.ServeHTTP(w, r)
				return
			}
			ctx, cancel := withLimit(r.Context(), limit)
			defer cancel()
			answer := &late{Watched: answers.Watch(w), err: ctx.Err}
			next.ServeHTTP(answer, r.WithContext(ctx))
			if answer.Status == 0 && answer.isLate() {
				task.WriteError(w, fmt.Errorf("the task's time of %s is up: %w", limit, context.DeadlineExceeded))
			}
		})
	}
}

// withLimit bounds ctx, unless it ends sooner: the poller has bounded the task by
// its own time-out already.
func withLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if at, ok := ctx.Deadline(); ok && time.Until(at) <= limit {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

// late turns a failure that is written after the deadline into TIMEOUT.
type late struct {
	*answers.Watched
	err func() error // the context's
}

func (w *late) isLate() bool { return errors.Is(w.err(), context.DeadlineExceeded) }

func (w *late) WriteHeader(status int) {
	if w.Status == 0 && status >= 200 && w.isLate() && task.CodeOf(status, w.Header()) == task.Failed {
		w.Header().Set(task.CodeHeader, string(task.Timeout))
	}
	w.Watched.WriteHeader(status)
}

func (w *late) Write(b []byte) (int, error) {
	if w.Status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.Watched.Write(b)
}
