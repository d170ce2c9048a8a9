package task

import (
	"context"
	"sync"
)

// Outcome is what a handler reports about its task to the middleware around it.
// An answer with code [OK] may say that a step failed; logs and metrics learn that
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
// the code answered: a step that failed has failed, also if its answer is [OK].
func (o Outcome) Code(answered Code) Code {
	switch {
	case answered != OK:
		return answered
	case o.Status == "TIMEOUT":
		return Timeout
	case o.Status == "FAILURE" || o.Status == "ERROR":
		return Failed
	}
	return OK
}

type outcomeKey struct{}

// outcomeRecord holds the outcome of one task.
type outcomeRecord struct {
	mu      sync.Mutex
	outcome Outcome
}

// TrackOutcome returns a context in which a handler can report the outcome of one
// task. [Serve] and the router call it; other callers of handlers need not.
func TrackOutcome(ctx context.Context) context.Context {
	return context.WithValue(ctx, outcomeKey{}, &outcomeRecord{})
}

// ReportOutcome tells the middleware around a handler the outcome of the task of
// ctx. The last report counts. Without [TrackOutcome] it does nothing.
func ReportOutcome(ctx context.Context, o Outcome) {
	if r, ok := ctx.Value(outcomeKey{}).(*outcomeRecord); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.outcome = o
	}
}

// OutcomeFromContext returns what the handler has reported about the task of ctx.
// Middleware calls it after the handler has returned.
func OutcomeFromContext(ctx context.Context) Outcome {
	if r, ok := ctx.Value(outcomeKey{}).(*outcomeRecord); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.outcome
	}
	return Outcome{}
}
