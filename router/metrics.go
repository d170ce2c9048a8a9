package router

import (
	"net/http"
	"time"

	"github.com/delegate-io/dlite/task"
)

// Observation is what [Metrics] saw of one task.
type Observation struct {
	// Type is the task's type as the manager sent it, also when it has no route.
	// Who makes a metric label of it checks it against [Router.Types] first: a
	// manager can send any number of types.
	Type string
	// Kind is what the type means for a stage.
	Kind task.Kind
	// Code is the outcome: FAILED for a task that panicked or wrote nothing.
	Code task.Code
	// Status is the HTTP status, 0 for a handler that wrote nothing.
	Status int
	// Panicked says that the handler did not return.
	Panicked bool
	// Duration is the handler's run.
	Duration time.Duration
}

// Metrics calls observe once for every task, when its handler is done, also
// when it panicked; the panic goes on (SPEC L3, R3). Tasks run in parallel, so
// observe must be safe for concurrent use, and its time is the task's: it must
// not block. It panics when observe is nil.
//
// Put it outside [Recover] and [Deadline] to count the outcomes that these make.
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
				o.Code, o.Status = answer.Code(), answer.Status
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
