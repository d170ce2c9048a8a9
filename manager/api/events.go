package api

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// Event is a change of the status of a stage, step, task or delegate.
type Event struct {
	// Kind is "status" for a new status, or "place" for a change of the place where a stage waits. The iterators of this
	// package add two kinds. "open" means that the feed is connected, and that all events after ID follow. "missed" means
	// that the feed had to start anew after ID: read the state again.
	Kind string `json:"-"`
	// ID counts the events of an account from 1. A place has none.
	ID uint64 `json:"id,omitempty"`
	// Type is "stage", "step", "task" or "delegate".
	Type string    `json:"type"`
	At   time.Time `json:"at"`
	// Stage, Step, Task and Delegate are the ids that apply to the event. Step also names an init or a cleanup.
	Stage    string `json:"stage_id,omitempty"`
	Step     string `json:"step_id,omitempty"`
	Task     string `json:"task_id,omitempty"`
	Delegate string `json:"delegate_id,omitempty"`
	// Status is the new status; for a delegate, its state.
	Status Status `json:"status"`
	// Place, Reason and Waited describe how a stage waits at the time the event is sent. Place counts from 1, Waited is in
	// milliseconds.
	Place  int    `json:"place,omitempty"`
	Reason string `json:"reason,omitempty"`
	Waited int64  `json:"waited_ms,omitempty"`
	// Error explains a status that is not a success, and FailureKind classifies it.
	Error       string      `json:"error_msg,omitempty"`
	FailureKind FailureKind `json:"failure_kind,omitempty"`
}

// EventFilter selects events.
type EventFilter struct {
	// Stage selects the events of one stage. Empty means all events of the account.
	Stage string
	// Since is the id of an event: those after it follow. Nil means those that happen from now on.
	Since *uint64
}

// Events yields the events of the account until ctx ends. The first event has the kind "open". To know the whole state,
// read it after that event, and apply the events to it.
//
// When the connection is lost, Events yields an error, and connects again if the loop continues. No event is lost or
// comes twice. If the manager does not have the missing events any more, the next event has the kind "missed". The
// iterator ends with an error if the manager refuses the call, and with the error of ctx.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	since := ""
	if f.Since != nil {
		since = strconv.FormatUint(*f.Since, 10)
	}
	messages := c.follow(ctx, since, func(last string) *call {
		q := url.Values{}
		if f.Stage != "" {
			q.Set("stage", f.Stage)
		}
		what := get("api", "events").asking(q)
		if last != "" {
			what.header = map[string]string{"Last-Event-ID": last}
		}
		return what
	})
	return func(yield func(Event, error) bool) {
		opened := false // since the last lost connection
		for m, err := range messages {
			var e Event
			if err == nil {
				e, err = eventOf(m)
			}
			switch {
			case err != nil:
				opened = false
			case m.data == "" && opened: // the position of a stream that was silent
				continue
			case m.data == "":
				e.Kind, opened = "open", true
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func eventOf(m message) (Event, error) {
	e := Event{Kind: m.event}
	var err error
	if m.data != "" {
		err = json.Unmarshal([]byte(m.data), &e)
	}
	if err == nil && m.id != "" {
		e.ID, err = strconv.ParseUint(m.id, 10, 64)
	}
	if err != nil {
		return Event{}, fmt.Errorf("the manager sent an event that cannot be read: %w", err)
	}
	return e, nil
}
