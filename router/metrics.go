package router

import (
	"net/http"
	"time"

	"github.com/delegate-io/dlite/task"
)

// Observation is the result of one task, as [Metrics] saw it.
type Observation struct {
	// Type is the task's type as the manager sent it, also when it has no route. A
	// manager can send any number of types: check it against [Router.Types] before
	// you use it as a label of a metric.
	Type string
	// Kind is the role of the type in a stage.
	Kind task.Kind
	// Code is the result. It is FAILED for a task that panicked or wrote nothing. A
	// step that failed counts as FAILED, or TIMEOUT, also if its answer is OK
	// ([task.Outcome]).
	Code task.Code
	// Status is the HTTP status, 0 if the handler wrote nothing.
	Status int
	// Outcome is what the handler reported about its task.
	Outcome task.Outcome
	// Panicked reports that the handler did not return.
	Panicked bool
	// Duration is the time that the handler ran.
	Duration time.Duration
}

// Metrics calls observe once for every task when its handler has ended, also when
// the handler panicked; the panic goes on (rules L3, R3). Tasks run in parallel, so
// observe must be safe for concurrent use. It delays the task, so it must not
// block. Metrics panics when observe is nil.
//
// Put it outside of [Standard], with [WithMiddleware], so that it counts the
// answers that Recover and Deadline make.
func Metrics(observe func(Observation)) Middleware {
	if observe == nil {
		panic("router: Metrics of a nil function")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var o Observation
			if t, ok := task.FromContext(r.Context()); ok {
				o.Type, o.Kind = t.Type, task.KindOf(t.Type)
			}
			answer, start := task.Watch(w), time.Now()
			o.Panicked = true
			defer func() {
				o.Duration = time.Since(start)
				o.Outcome = task.OutcomeFromContext(r.Context())
				o.Code, o.Status = o.Outcome.Code(answer.Code()), answer.Status
				if o.Panicked {
					o.Code = task.Failed
				}
				observe(o)
			}()
			next.ServeHTTP(answer, r)
			o.Panicked = false
		})
	}
}
