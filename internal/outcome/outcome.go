// Package outcome passes the outcome of a task from its handler to the middleware around it. The answer
// of a step that failed has the code OK, so this is the only way for logs and metrics to count the
// failure.
package outcome

import (
	"context"
	"sync"

	"github.com/delegate-io/dlite/task"
)

// Outcome is the report of a handler about its task, for the middleware around it.
// An answer with code [task.OK] may say that a step failed; logs and metrics learn that
// from the outcome. The zero value says nothing.
type Outcome struct {
	// Transaction, Stage and Step are the ids that the task's payload names. Empty
	// ones are unknown.
	Transaction, Stage, Step string
	// Status is the command_execution_status of the answer: SUCCESS, FAILURE,
	// TIMEOUT and others (docs/protocol.md). Empty means that the task has none.
	Status string
	// ExitCode is the exit code of the step, 0 if the task is no step.
	ExitCode int
}

// Code returns the code that counts for a task with this outcome whose answer has
// the code answered: a step that failed has failed, also if its answer is [task.OK].
func (o Outcome) Code(answered task.Code) task.Code {
	switch {
	case answered != task.OK:
		return answered
	case o.Status == "TIMEOUT":
		return task.Timeout
	case o.Status == "FAILURE" || o.Status == "ERROR":
		return task.Failed
	}
	return task.OK
}

type key struct{}

// record holds the outcome of one task.
type record struct {
	mu      sync.Mutex
	outcome Outcome
}

// Track returns a context in which a handler can report the outcome of one task. The
// router calls it.
func Track(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, &record{})
}

// Report passes the outcome of the task of ctx to the middleware around its
// handler. The last report counts. Without [Track] it does nothing.
func Report(ctx context.Context, o Outcome) {
	if r, ok := ctx.Value(key{}).(*record); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.outcome = o
	}
}

// FromContext returns the report of the handler about the task of ctx.
// Middleware calls it after the handler has returned.
func FromContext(ctx context.Context) Outcome {
	if r, ok := ctx.Value(key{}).(*record); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.outcome
	}
	return Outcome{}
}
