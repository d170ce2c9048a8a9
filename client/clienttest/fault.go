package clienttest

import (
	"context"
	"fmt"
	"time"
)

// FaultKind is what goes wrong with a request.
type FaultKind int

// The faults. With those that say so the handler runs first, and only what the
// client gets to see of it is spoiled: the manager has acted.
const (
	// AnswerStatus answers with Fault.Status.
	AnswerStatus FaultKind = iota
	// LoseRequest cuts the connection before the handler runs.
	LoseRequest
	// LoseResponse runs the handler and cuts the connection without an answer.
	LoseResponse
	// Hang holds the request and answers nothing, until the client goes away or
	// Fault.Delay is over, and then cuts the connection.
	Hang
	// Slow waits for Fault.Delay and then runs the handler as usual.
	Slow
	// Truncate runs the handler, sends half of its body and cuts the connection.
	Truncate
	// Garbage runs the handler and answers 200 with a page that is not JSON.
	Garbage
	// EmptyBody runs the handler and answers 200 without a body.
	EmptyBody
	// Oversize runs the handler and answers 200 with Fault.Size bytes of JSON.
	Oversize
	// Redirect answers with a redirect to Fault.Location.
	Redirect

	faultKinds // how many there are
)

// String is the kind's name in lower case.
func (k FaultKind) String() string {
	names := [faultKinds]string{
		"status", "lose request", "lose response", "hang", "slow", "truncate", "garbage", "empty body", "oversize", "redirect",
	}
	if k < 0 || k >= faultKinds {
		return fmt.Sprintf("FaultKind(%d)", int(k))
	}
	return names[k]
}

// Fault says which requests go wrong, how often and how. The zero value answers
// every request with 503.
//
// A request meets at most one fault: the first that was injected, matches and
// fires.
//
// Times and chances count requests as they arrive. Go's HTTP client repeats a
// GET by itself, once, when a kept connection is cut before anything was
// answered; such a repetition is a request of its own here.
type Fault struct {
	// Call, TaskID and DelegateID select requests; empty matches all. A request
	// that does not name a delegate in its path or query matches no DelegateID.
	Call       Call
	TaskID     string
	DelegateID string

	Kind FaultKind

	// Skip lets that many matching requests through first.
	Skip int
	// Times is how many requests it spoils; 0 is no limit.
	Times int
	// Probability is the chance, up to 1, that a matching request is spoiled. 0
	// spoils every one. The seed of [NewFaults] decides the sequence of draws.
	Probability float64

	// Status is for AnswerStatus, where 0 means 503, and Redirect, where 0 means
	// 307.
	Status int
	// RetryAfter is sent with AnswerStatus, in whole seconds, rounded up. 0 sends
	// none.
	RetryAfter time.Duration
	// Body replaces the body of AnswerStatus and Garbage. Empty leaves the
	// default.
	Body string
	// Delay is how long Hang holds a request, where 0 means until the client goes
	// away, and how long every other kind waits before it does anything.
	Delay time.Duration
	// Late runs the handler before AnswerStatus, Hang and Redirect, as a proxy
	// does that gives up too early. The other kinds do not look at it.
	Late bool
	// Location is where Redirect points to. Empty means "/redirected", which no
	// call has.
	Location string
	// Size is how much Oversize sends, in bytes. 0 means 1 MiB over [task.MaxBody].
	Size int64
}

func (f *Fault) check() {
	switch {
	case f.Kind < 0 || f.Kind >= faultKinds:
		panic(fmt.Sprintf("clienttest: no such fault: %s", f.Kind))
	case f.Probability < 0 || f.Probability > 1:
		panic(fmt.Sprintf("clienttest: a probability of %v", f.Probability))
	case f.Times < 0 || f.Skip < 0 || f.Delay < 0 || f.RetryAfter < 0 || f.Size < 0:
		panic("clienttest: a fault with a negative number")
	case f.Status != 0 && (f.Status < 200 || f.Status > 599):
		panic(fmt.Sprintf("clienttest: a status of %d", f.Status))
	case f.Kind == Slow && f.Delay == 0:
		panic("clienttest: Slow without a delay")
	}
}

func (f *Fault) matches(t target) bool {
	return (f.Call == CallAny || f.Call == t.call) &&
		(f.TaskID == "" || f.TaskID == t.taskID) &&
		(f.DelegateID == "" || f.DelegateID == t.delegateID)
}

// Injection is a fault that was injected. Safe for concurrent use.
type Injection struct {
	faults *Faults
	fault  Fault
	// Guarded by faults.mu.
	skipped int
	count   int
}

// Count is how many requests it has spoiled, those included that hang now.
func (i *Injection) Count() int {
	i.faults.mu.Lock()
	defer i.faults.mu.Unlock()
	return i.count
}

// Remove ends it. Requests that it holds stay held. Removing twice is harmless.
func (i *Injection) Remove() {
	i.faults.mu.Lock()
	defer i.faults.mu.Unlock()
	i.faults.remove(i)
}

// Wait waits until it has spoiled n requests; the last may still be going on.
// Its error is the context's.
func (i *Injection) Wait(ctx context.Context, n int) error {
	for {
		i.faults.mu.Lock()
		count, changed := i.count, i.faults.changed.wait()
		i.faults.mu.Unlock()
		if count >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d faults (%s), of which %d happened: %w", n, i.fault.Kind, count, ctx.Err())
		}
	}
}
