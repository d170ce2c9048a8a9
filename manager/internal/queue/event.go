package queue

import (
	"encoding/json"
	"time"

	"github.com/delegate-io/dlite/task"
)

// EventKind is the kind of an event.
type EventKind int

// The kinds of events.
const (
	// Acquired: a delegate has acquired the task.
	Acquired EventKind = iota + 1
	// Requeued: an offer was withdrawn or refused. The stage or task waits again.
	Requeued
	// Ended: the task has its final result. A single task is finished with it.
	Ended
	// Expired: the stage has run for its RunTimeout. The queue does not end it.
	Expired
	// Forgotten: the queue has forgotten an ended stage or single task.
	Forgotten
	// Lost: the delegate was silent for too long.
	Lost
	// Returned: a lost delegate is back.
	Returned
	// LeaseEnded: the lease of the stage has ended. The queue does not end the stage.
	LeaseEnded
	// Stranded: the delegate of a leased stage is lost while the stage has no task, and
	// there is no peer. Result says why. The queue does not end the stage.
	Stranded
)

// Event is a change of a task, a work or a delegate.
type Event struct {
	Kind    EventKind
	At      time.Time
	Account string
	// Work is the stage or single task. It is empty for Lost and Returned.
	Work string
	// Task is the task of the event, if it has one. Started reports whether a delegate had
	// acquired it.
	Task    string
	Started bool
	// Delegate is the delegate of the event: it has the task or had it last, is lost, or
	// is back.
	Delegate string
	// Variant is the index of the work's variant that the delegate got.
	Variant int
	// Result is how the task ended.
	Result Result
}

// Events returns the events since the last call, in the order in which they happened.
// It is for one reader. The queue keeps events until the reader takes them.
func (q *Queue) Events() []Event {
	defer q.unlock(q.lock())
	events := q.events
	q.events = make([]Event, 0, min(len(events), 1024)) // as many will come again
	return events
}

// emit adds an event of a task.
func (q *Queue) emit(kind EventKind, now instant, r *record) {
	q.events = append(q.events, r.event(kind, now))
}

func (r *record) event(kind EventKind, now instant) Event {
	return Event{
		Kind: kind, At: now.time(), Account: r.work.account.id, Work: r.work.ID, Task: r.ID,
		Started: r.Acquired != 0, Delegate: r.owner.id(), Variant: int(r.work.Variant), Result: r.result(),
	}
}

// emitDelegate adds an event of a delegate.
func (q *Queue) emitDelegate(kind EventKind, now instant, d *delegate) {
	q.events = append(q.events, Event{Kind: kind, At: now.time(), Account: d.account.id, Delegate: d.info.ID})
}

// Outcome is how a task ended.
type Outcome string

// The outcomes. The empty one means that the task has not ended.
const (
	Success   Outcome = "SUCCESS"
	Failure   Outcome = "FAILURE"
	TimedOut  Outcome = "TIMEOUT"
	Aborted   Outcome = "ABORTED"
	Abandoned Outcome = "LOST" // the delegate is lost or has unregistered
)

// Result is the end of a task.
type Result struct {
	Outcome Outcome `json:"outcome,omitempty"`
	// Error explains why Outcome is not Success.
	Error string `json:"error,omitempty"`
	// Code and Data come from the delegate's answer. Without one they are zero.
	Code task.Code       `json:"code,omitempty"`
	Data json.RawMessage `json:"-"` // a saved queue has them elsewhere
}
