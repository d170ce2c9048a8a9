package router

import (
	"net/http"
	"time"

	"github.com/delegate-io/dlite/internal/answers"
	"github.com/delegate-io/dlite/internal/outcome"
	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/task"
)

// Observation is the result of one task, as [Metrics] saw it.
type Observation struct {
	// Type is the task's type as the manager sent it, also when it has no route. A
	// manager can send any number of types: check it against [Router.Types] before
	// you use it as a label of a metric.
	Type string
	// Kind is the role of the type in a stage: init, execute, cleanup, or standalone
	// for a task that belongs to no transaction.
	Kind string
	// Code is the result. It is FAILED for a task that panicked or wrote nothing. A
	// step that failed counts as FAILED, or TIMEOUT, also if its answer is OK.
	Code task.Code
	// Status is the HTTP status, 0 if the handler wrote nothing.
	Status int
	// Transaction, Stage and Step are the ids that the payload of a stage's task names.
	// They, CommandStatus and ExitCode are empty for other tasks.
	Transaction, Stage, Step string
	// CommandStatus is the command_execution_status of the answer: SUCCESS, FAILURE,
	// TIMEOUT and others (docs/protocol.md).
	CommandStatus string
	// ExitCode is the exit code of the step, 0 if the task is no step.
	ExitCode int
	// Panicked reports that the handler did not return.
	Panicked bool
	// Duration is the time that the handler ran.
	Duration time.Duration
}

// Metrics calls observe once for every task when its handler has ended, also when
// the handler panicked; it does not stop the panic (rules L3, R3). Tasks run in parallel, so
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
				o.Type, o.Kind = t.Type, taskkind.Of(t.Type).String()
			}
			answer, start := answers.Watch(w), time.Now()
			o.Panicked = true
			defer func() {
				o.Duration = time.Since(start)
				did := outcome.FromContext(r.Context())
				o.Transaction, o.Stage, o.Step = did.Transaction, did.Stage, did.Step
				o.CommandStatus, o.ExitCode = did.Status, did.ExitCode
				o.Code, o.Status = did.Code(task.CodeOf(answer.Status, answer.Header())), answer.Status
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
