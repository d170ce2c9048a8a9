package perpetual

import (
	"encoding/json"
	"time"
)

// eventSize is the size of an event without its data.
const eventSize = 128

// Event is an event of a run. It waits until a consumer has taken it.
type Event struct {
	ID      uint64          `json:"id"`
	Account string          `json:"account"`
	Task    string          `json:"task"`
	At      millis          `json:"at"`
	Data    json.RawMessage `json:"data"`
}

// Time returns when the manager took the event.
func (e *Event) Time() time.Time { return e.At.time() }

// outbox holds the events of the tasks of a type, in their order. One consumer at a time
// has a claim to them.
type outbox struct {
	Type     string  `json:"type"`
	Events   []Event `json:"events"`
	Consumer string  `json:"consumer,omitempty"`
	Due      millis  `json:"due,omitempty"` // the end of its claim
}

// claimFor is how long a claim is valid. The consumer renews it.
const claimFor = 30 * time.Second

// publish adds an event.
func (s *Set) publish(a *account, t *Task, data json.RawMessage) {
	o := s.outboxes[t.Type]
	if o == nil {
		o = &outbox{Type: t.Type}
		s.outboxes[t.Type] = o
	}
	o.Events = append(o.Events, Event{ID: s.number(), Account: a.id, Task: t.ID, At: s.last, Data: data})
	a.events++
	a.bytes += len(data) + eventSize
	s.wakeConsumers()
}

func (s *Set) wakeConsumers() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// Claim gives or renews the claim to the events of a type, if there are events and no
// other consumer has it. It reports whether the consumer has the claim.
func (s *Set) Claim(taskType, consumer string) bool {
	o := s.outboxes[taskType]
	if o == nil || len(o.Events) == 0 || o.Consumer != "" && o.Consumer != consumer && o.Due > s.last {
		return false
	}
	o.Consumer, o.Due = consumer, s.last.after(claimFor)
	return true
}

// Done removes the events up to an id, and gives the claim back. It has no effect if
// the consumer has lost the claim to another one.
func (s *Set) Done(taskType, consumer string, last uint64) {
	o := s.outboxes[taskType]
	if o == nil || o.Consumer != consumer {
		return
	}
	n := 0
	for n < len(o.Events) && o.Events[n].ID <= last {
		e := &o.Events[n]
		a := s.account(e.Account)
		a.events--
		a.bytes -= len(e.Data) + eventSize
		n++
	}
	o.Events = append([]Event(nil), o.Events[n:]...)
	o.Consumer, o.Due = "", 0
	if len(o.Events) == 0 {
		delete(s.outboxes, taskType)
	}
	s.wakeConsumers()
}

// Bounds of the events that a consumer gets together.
const (
	maxBatch      = 100
	maxBatchBytes = 1 << 20
)

// Events returns the first events of a type, the end of the claim of another consumer, zero
// if there is none, and a channel that is closed when that has changed.
func (s *Set) Events(taskType, consumer string) (first []Event, free time.Time, changed <-chan struct{}) {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	o := s.outboxes[taskType]
	if o == nil {
		return nil, time.Time{}, s.changed
	}
	size := 0
	for i := range o.Events {
		if size += len(o.Events[i].Data); i == maxBatch || i > 0 && size > maxBatchBytes {
			break
		}
		first = append(first, o.Events[i])
	}
	if o.Consumer != consumer {
		free = o.Due.time()
	}
	return first, free, s.changed
}
