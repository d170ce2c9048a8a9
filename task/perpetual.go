package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Bounds of a run of a perpetual task. The manager refuses a result beyond them.
const (
	// MaxPerpetualState bounds [PerpetualResult].State and the config of a task, in bytes.
	MaxPerpetualState = 64 << 10
	// MaxPerpetualEvents bounds the number of [PerpetualResult].Events.
	MaxPerpetualEvents = 100
	// MaxPerpetualEventBytes bounds the sum of the sizes of [PerpetualResult].Events.
	MaxPerpetualEventBytes = 256 << 10
)

// Perpetual does the runs of the perpetual tasks of a type (rule G1). The manager
// assigns each task to one delegate, which calls RunPerpetual at the interval of the
// task, or in a loop. Runs of different tasks may be concurrent, runs of one task are
// not.
//
// The context ends when the lease of the task is lost, at the time-out of the run, and
// when the delegate drains. RunPerpetual must then return soon: another delegate may
// get the task, and the manager refuses the result. A result that is returned in time
// is recorded even if the context has ended.
//
// An error, or a panic, is a failed run: its text is shown to people and must not
// contain a secret. The state of the task does not change, and the next run starts
// after a back-off. The delegate's logger, with the labels of the task, is in the
// context (logger.FromContext).
type Perpetual interface {
	RunPerpetual(ctx context.Context, run *PerpetualRun) (*PerpetualResult, error)
}

// PerpetualFunc is a function that is a [Perpetual].
type PerpetualFunc func(ctx context.Context, run *PerpetualRun) (*PerpetualResult, error)

// RunPerpetual calls f.
func (f PerpetualFunc) RunPerpetual(ctx context.Context, run *PerpetualRun) (*PerpetualResult, error) {
	return f(ctx, run)
}

// PerpetualRun is one run of a perpetual task.
type PerpetualRun struct {
	// ID is the task's id, unique in its account.
	ID string
	// Type is the task's type, for which the handler was registered.
	Type string
	// Account is the account of the task.
	Account string
	// Token is the fencing token of the assignment to this delegate. Each assignment of
	// the task has a larger one. A handler that writes to another system passes it on, so
	// that the system can refuse a write with a token below one that it has seen.
	Token uint64
	// Config is the configuration of the task, as it was created. Null or empty if it has
	// none.
	Config json.RawMessage
	// State is the state that the last successful run returned, on any delegate. Empty
	// before the first one.
	State json.RawMessage
	// Failures is the number of failed runs since the last successful one.
	Failures int
}

// PerpetualResult is the result of a successful run. The manager takes its state and its
// events together or not at all.
type PerpetualResult struct {
	// State is the new state of the task: a JSON value of at most [MaxPerpetualState]
	// bytes. Nil keeps the previous state. It is stored by the manager and must not contain
	// a secret.
	State json.RawMessage
	// Events are JSON values for the consumer of the task's type, in their order, at most
	// [MaxPerpetualEvents] of together [MaxPerpetualEventBytes].
	Events []json.RawMessage
}

// Check returns an error if the result is not valid JSON or is beyond the bounds. A nil
// result is valid: it changes nothing.
func (r *PerpetualResult) Check() error {
	if r == nil {
		return nil
	}
	switch {
	case len(r.State) > MaxPerpetualState:
		return fmt.Errorf("the state has %d bytes, at most %d are allowed", len(r.State), MaxPerpetualState)
	case len(r.State) > 0 && !json.Valid(r.State):
		return errors.New("the state is not valid JSON")
	case len(r.Events) > MaxPerpetualEvents:
		return fmt.Errorf("there are %d events, at most %d are allowed in a run: keep the others for the next run", len(r.Events), MaxPerpetualEvents)
	}
	sum := 0
	for i, e := range r.Events {
		if sum += len(e); sum > MaxPerpetualEventBytes {
			return fmt.Errorf("the events have more than %d bytes: keep the others for the next run", MaxPerpetualEventBytes)
		}
		if !json.Valid(e) {
			return fmt.Errorf("event %d is not valid JSON", i)
		}
	}
	return nil
}
