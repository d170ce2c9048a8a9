package clientfaults

import (
	"context"
	"fmt"
	"time"
)

// Kind is the way in which a request fails.
type Kind int

// The kinds of faults. Some kinds run the handler first and change only the
// answer: the manager has then acted, although the client sees a failure.
const (
	// AnswerStatus answers with Fault.Status.
	AnswerStatus Kind = iota
	// DropRequest closes the connection before the handler runs.
	DropRequest
	// DropResponse runs the handler and closes the connection without an answer.
	DropResponse
	// Hang holds the request without an answer until the client disconnects or
	// Fault.Delay passes, and then closes the connection.
	Hang
	// Slow waits for Fault.Delay and then runs the handler as usual.
	Slow
	// Truncate runs the handler, sends half of its body and closes the connection.
	Truncate
	// Garbage runs the handler and answers 200 with a page that is not JSON.
	Garbage
	// EmptyBody runs the handler and answers 200 without a body.
	EmptyBody
	// Oversize runs the handler and answers 200 with Fault.Size bytes of JSON.
	Oversize
	// Redirect answers with a redirect to Fault.Location.
	Redirect

	kindCount
)

// String returns the name of the kind in lower case.
func (k Kind) String() string {
	names := [kindCount]string{
		"status", "drop request", "drop response", "hang", "slow", "truncate", "garbage", "empty body", "oversize", "redirect",
	}
	if k < 0 || k >= kindCount {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return names[k]
}

// Fault selects requests and describes how they fail. The zero value answers
// every request with 503.
//
// A request meets at most one fault: the first injected fault that matches and
// fires.
//
// Skip, Times and Probability count requests as they arrive. Go's HTTP client
// repeats a GET once by itself when a reused connection breaks before an answer.
// Such a repetition counts as a request.
type Fault struct {
	// Call, TaskID and DelegateID select requests. Empty matches every request. A
	// request whose path and query name no delegate matches only an empty
	// DelegateID.
	Call       string
	TaskID     string
	DelegateID string

	Kind Kind

	// Skip is the number of matching requests that pass before the fault starts.
	Skip int
	// Times is the number of requests that fail. Zero means no limit.
	Times int
	// Probability is the chance, up to 1, that a matching request fails. Zero
	// fails every matching request. The seed of [New] determines the draws.
	Probability float64

	// Status is the status of AnswerStatus, by default 503, and of Redirect, by
	// default 307.
	Status int
	// RetryAfter is the Retry-After header of AnswerStatus, rounded up to whole
	// seconds. Zero sends no header.
	RetryAfter time.Duration
	// Body replaces the body of AnswerStatus and Garbage. Empty keeps the default.
	Body string
	// Delay is the time for which Hang holds a request; zero means until the
	// client disconnects. Every other kind waits for Delay first.
	Delay time.Duration
	// Late runs the handler before AnswerStatus, Hang and Redirect, like a proxy
	// that gives up too early. The other kinds ignore it.
	Late bool
	// Location is the target of Redirect. Empty means "/redirected", a path that
	// no call has.
	Location string
	// Size is the number of bytes that Oversize sends. Zero means 1 MiB more than
	// task.MaxBody.
	Size int64
}

func (f *Fault) validate() {
	switch {
	case f.Kind < 0 || f.Kind >= kindCount:
		panic(fmt.Sprintf("clientfaults: unknown kind %s", f.Kind))
	case f.Probability < 0 || f.Probability > 1:
		panic(fmt.Sprintf("clientfaults: the probability is %v: it must be between 0 and 1", f.Probability))
	case f.Times < 0 || f.Skip < 0 || f.Delay < 0 || f.RetryAfter < 0 || f.Size < 0:
		panic("clientfaults: a number of the fault is negative")
	case f.Status != 0 && (f.Status < 200 || f.Status > 599):
		panic(fmt.Sprintf("clientfaults: the status is %d: it must be between 200 and 599", f.Status))
	case f.Kind == Slow && f.Delay == 0:
		panic("clientfaults: Slow needs a Delay")
	}
}

func (f *Fault) matches(call string, delegateID, taskID string) bool {
	return (f.Call == "" || f.Call == call) &&
		(f.TaskID == "" || f.TaskID == taskID) &&
		(f.DelegateID == "" || f.DelegateID == delegateID)
}

// Injection is an injected fault. It is safe for concurrent use.
type Injection struct {
	faults *Faults
	fault  Fault
	// Guarded by faults.mu.
	skipped int
	count   int
}

// Count returns the number of requests that met the fault, including requests
// that it still holds.
func (i *Injection) Count() int {
	i.faults.mu.Lock()
	defer i.faults.mu.Unlock()
	return i.count
}

// Remove ends the fault. Held requests stay held. Remove may be called more than
// once.
func (i *Injection) Remove() {
	i.faults.mu.Lock()
	defer i.faults.mu.Unlock()
	i.faults.remove(i)
}

// Wait returns when n requests have met the fault; the last request may still be
// in progress. It returns the error of the context.
func (i *Injection) Wait(ctx context.Context, n int) error {
	for {
		i.faults.mu.Lock()
		count, changed := i.count, i.faults.changed
		i.faults.mu.Unlock()
		if count >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d faults (%s), %d happened: %w", n, i.fault.Kind, count, ctx.Err())
		}
	}
}
