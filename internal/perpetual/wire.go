// Package perpetual has the call by which a delegate renews the leases of its perpetual
// tasks, reports their runs, and gets assignments (docs/protocol.md), and the pauses
// between runs.
package perpetual

import (
	"encoding/json"
	"time"

	"github.com/delegate-io/dlite/task"
)

// Path is the path of the call, with the id of the delegate between its parts.
const (
	PathPrefix = "/api/agent/perpetual/"
	PathSuffix = "/reconcile"
)

// Report is the body of the call.
type Report struct {
	// Session identifies the process of the delegate: its leases end with it.
	Session string `json:"session"`
	// Types are the types that the delegate has handlers for.
	Types []string `json:"types,omitempty"`
	// Leaving means that the delegate drains or is in maintenance: it gets no tasks and
	// hands back those that it has.
	Leaving bool `json:"leaving,omitempty"`
	// Since is the cursor of the last answer with changes. Empty asks for everything. A
	// call with Only gets no changes.
	Since string `json:"since,omitempty"`
	Only  bool   `json:"only,omitempty"`
	// Results are ended runs, Released are assignments that the delegate hands back
	// after these.
	Results  []Result `json:"results,omitempty"`
	Released []Claim  `json:"released,omitempty"`
}

// Claim names an assignment of a task.
type Claim struct {
	ID    string `json:"id"`
	Token uint64 `json:"token"`
}

// Result is the end of a run, or of several runs of a task that changed nothing.
type Result struct {
	Claim
	// Run is the number of the run since the assignment, from 1. A result that arrives
	// twice counts once.
	Run uint64 `json:"run"`
	// Runs is the number of runs that the result stands for. 0 means 1.
	Runs uint64 `json:"runs,omitempty"`
	// Kick is the [Assignment.Kick] that the run had.
	Kick uint64 `json:"kick,omitempty"`
	// StartedAgoMS is how long ago the run began, DurationMS how long it took.
	StartedAgoMS int64 `json:"startedAgoMs"`
	DurationMS   int64 `json:"durationMs"`
	// Error is the reason of a failed run. It has neither state nor events.
	Error string `json:"error,omitempty"`
	// State is the new state. Empty means no change.
	State  json.RawMessage   `json:"state,omitempty"`
	Events []json.RawMessage `json:"events,omitempty"`
}

// Answer is the answer to the call.
type Answer struct {
	// LeaseMS is the length of the leases, which the call has renewed.
	LeaseMS int64 `json:"leaseMs"`
	// Cursor is the Since of the next call. It is empty in the answer to a call with Only.
	Cursor string `json:"cursor,omitempty"`
	// Assigned are the tasks of the delegate that are new or have changed.
	Assigned []Assignment `json:"assigned,omitempty"`
	// Held lists all tasks of the delegate, if HeldGiven. Others are lost.
	Held      []Claim `json:"held,omitempty"`
	HeldGiven bool    `json:"heldGiven,omitempty"`
	// More means that there are further changes: the delegate calls again at once.
	More bool `json:"more,omitempty"`
	// Refused are the results that were not taken. All others were.
	Refused []Refusal `json:"refused,omitempty"`
}

// Assignment is a task of the delegate.
type Assignment struct {
	Claim
	Account    string          `json:"account"`
	Type       string          `json:"type"`
	Config     json.RawMessage `json:"config,omitempty"`
	State      json.RawMessage `json:"state,omitempty"`
	IntervalMS int64           `json:"intervalMs,omitempty"`
	Loop       bool            `json:"loop,omitempty"`
	TimeoutMS  int64           `json:"timeoutMs"`
	// DueMS is the time until the next run.
	DueMS    int64 `json:"dueMs"`
	Failures int   `json:"failures,omitempty"`
	// Kick increases when a person asks for a run now.
	Kick uint64 `json:"kick,omitempty"`
	// Withdraw asks for the task back: now cancels its run, idle waits for its end.
	Withdraw string `json:"withdraw,omitempty"`
}

// The values of [Assignment.Withdraw].
const (
	WithdrawNow  = "now"
	WithdrawIdle = "idle"
)

// Refusal is a result that the manager has not taken.
type Refusal struct {
	Claim
	Run   uint64 `json:"run"`
	Error string `json:"error"`
	// Retry means that the same result may be taken later.
	Retry bool `json:"retry,omitempty"`
}

// Bounds of a report and of an answer.
const (
	MaxTypes    = 1000
	MaxID       = 256
	MaxError    = 4 << 10
	MaxResults  = 1000
	MaxReleased = 100_000
	// MaxAge bounds the times of a result.
	MaxAge = 7 * 24 * time.Hour
)

// Floor is the shortest time between the beginnings of two runs of a task.
const Floor = time.Second

// firstPause is the pause after the first failure, longestPause the longest pause of a
// task with a shorter interval.
const (
	firstPause   = 5 * time.Second
	longestPause = 5 * time.Minute
)

// Pause returns the least time from the end of a failed run to the next one: 5 s after
// the first failure, then twice as long each time, up to the longer one of the interval
// and 5 min.
func Pause(failures int, interval time.Duration) time.Duration {
	most := max(interval, longestPause)
	pause := firstPause
	for i := 1; i < failures && pause < most; i++ {
		pause *= 2
	}
	return min(pause, most)
}

// Next returns the time from the end of a run to the next one. The run took d.
func Next(failures int, interval, d time.Duration) time.Duration {
	if failures > 0 {
		return Pause(failures, interval)
	}
	return max(max(interval, Floor)-d, 0)
}

// Size is the size of a result in a report, at least.
func (r *Result) Size() int {
	n := 200 + len(r.ID) + len(r.Error) + len(r.State)
	for _, e := range r.Events {
		n += len(e) + 1
	}
	return n
}

// Check returns an error if the state or the events are beyond the bounds of package task.
func (r *Result) Check() error {
	return (&task.PerpetualResult{State: r.State, Events: r.Events}).Check()
}
