package queue

import (
	"encoding/json"
	"time"

	"github.com/delegate-io/dlite/task"
)

// EventKind says what has happened.
type EventKind int

// The kinds of events.
const (
	// Acquired: a delegate has taken the task.
	Acquired EventKind = iota + 1
	// Requeued: an offer was withdrawn or refused; the stage or task waits again.
	Requeued
	// Ended: the task has its final result. When it was a single task its work
	// is finished with it.
	Ended
	// Expired: the stage has run for its RunTimeout. The queue does nothing
	// about it.
	Expired
	// Forgotten: the retention of the stage or single task is over.
	Forgotten
	// Lost: the delegate was silent for too long.
	Lost
	// Returned: a lost delegate is back.
	Returned
)

// Event is something that has happened.
type Event struct {
	Kind    EventKind
	At      time.Time
	Account string
	// Work is the stage or single task; empty for Lost and Returned.
	Work string
	// Task is the task, for Acquired and Ended; Started says of an ended task
	// that a delegate had acquired it.
	Task    string
	Started bool
	// Delegate has the task, had it last, or is what the event is about.
	Delegate string
	// Variant is the index of the work's variant that the delegate was given.
	Variant int
	// Result is how the task ended.
	Result Result
}

// Events takes the events since the last call, in the order of their happening.
// It is for one reader, who must come back: they are kept until taken.
func (q *Queue) Events() []Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = make([]Event, 0, min(len(events), 1024)) // as many will come again
	return events
}

func (q *Queue) emit(kind EventKind, now instant, r *record) {
	q.events = append(q.events, Event{
		Kind: kind, At: now.time(), Account: r.work.acc.id, Work: r.work.ID, Task: r.id,
		Started: r.acquired != 0, Delegate: r.owner.id(), Variant: int(r.work.variant), Result: r.result(),
	})
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

// Result is a task's end.
type Result struct {
	Outcome Outcome
	// Error says why Outcome is not Success.
	Error string
	// Code and Data are the delegate's answer, where there was one.
	Code task.Code
	Data json.RawMessage
}
