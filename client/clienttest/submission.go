package clienttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/delegate-io/dlite/task"
)

// ErrAborted means that a task was aborted before a delegate had acquired it.
var ErrAborted = errors.New("clienttest: the task was aborted before a delegate acquired it")

// Form is the form of an answer, which the path decides.
type Form string

// The forms of PROTOCOL 1 and 2.
const (
	FormLegacy Form = "legacy"
	FormRunner Form = "runner"
	FormV2     Form = "v2"
)

// Response is a delegate's answer as it arrived.
type Response struct {
	// ID and Type are the body's. ID may be empty on the wire and is so here.
	ID   string
	Type string
	Code task.Code
	// Error is the body's. The legacy form has none: there it is the data's
	// error_msg, where the data has one.
	Error string
	// Data is the data, decoded from base64 where the form has it so.
	Data json.RawMessage
	// Form is which of the three paths it came on.
	Form Form
	// DelegateID is who sent it, as the path or the query says.
	DelegateID string
	// Attempts is how many requests with an answer to this task had arrived by
	// then, with those that a fault has spoiled.
	Attempts int
}

// Submission is a task that a test submitted. Safe for concurrent use.
type Submission struct {
	// ID is the task's.
	ID string

	server   *Server
	acquired chan struct{}
	done     chan struct{}

	// What follows is guarded by server.mu.

	task       *task.Task
	to         string
	keepListed bool
	seq        uint64
	pending    bool
	aborted    bool
	finished   bool
	owner      string // the delegate that acquired it
	acquires   int
	attempts   int
	responses  []Response
	final      int // index of the response that ended it, -1 for none
}

// SubmitOption changes how a task is handed out.
type SubmitOption func(*Submission)

// To hands the task to one delegate alone, whatever types it supports.
func To(delegateID string) SubmitOption { return func(s *Submission) { s.to = delegateID } }

// isFor says whether a delegate is offered the task.
func (s *Submission) isFor(d *delegate) bool {
	if s.to != "" {
		return s.to == d.ID
	}
	return d.supports(s.task.Type)
}

// KeepListed goes on listing the task in polls until it is answered, as some
// managers do. A delegate has to acquire it once all the same (SPEC P2).
func KeepListed() SubmitOption { return func(s *Submission) { s.keepListed = true } }

// Submit offers a copy of a task to the delegates: to all that support its type,
// or that have registered without types. Without an id it gets one. It panics on
// an empty type and an id that was used before.
func (s *Server) Submit(t *task.Task, opts ...SubmitOption) *Submission {
	if t.Type == "" {
		panic("clienttest: a task without a type")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := *t
	if c.ID == "" {
		s.made++
		c.ID = fmt.Sprintf("task-%d", s.made)
	}
	if _, dup := s.tasks[c.ID]; dup {
		panic(fmt.Sprintf("clienttest: task id %q was used before", c.ID))
	}
	s.seq++
	sub := &Submission{
		ID: c.ID, server: s, task: &c, seq: s.seq, pending: true, final: -1,
		acquired: make(chan struct{}), done: make(chan struct{}),
	}
	for _, o := range opts {
		o(sub)
	}
	s.tasks[c.ID] = sub
	s.listed = append(s.listed, sub)
	s.news.raise()
	return sub
}

// Abort withdraws a task that nobody has acquired, and tells the delegate that
// runs it to stop otherwise, with every poll until it answers. It is false when
// there is nothing to abort: the task is unknown or done.
func (s *Server) Abort(taskID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.tasks[taskID]
	switch {
	case sub == nil || sub.finished:
		return false
	case sub.pending:
		sub.aborted = true
		s.finish(sub)
	case !sub.aborted:
		sub.aborted = true
		s.seq++
		sub.seq = s.seq
		s.aborting = append(s.aborting, sub)
		s.news.raise()
	}
	return true
}

// finish ends a submission. The caller holds mu.
func (s *Server) finish(sub *Submission) {
	sub.finished, sub.pending = true, false
	s.unlist(sub)
	s.aborting = slices.DeleteFunc(s.aborting, func(a *Submission) bool { return a == sub })
	close(sub.done)
}

func (s *Server) unlist(sub *Submission) {
	s.listed = slices.DeleteFunc(s.listed, func(l *Submission) bool { return l == sub })
}

// Wait waits for the answer that ends the task. One that says RUNNING does not
// (PROTOCOL 1). Its error is the context's, [ErrAborted] or [ErrClosed].
func (c *Submission) Wait(ctx context.Context) (*Response, error) {
	select {
	case <-c.done:
	case <-c.server.done:
		if r := c.response(); r != nil {
			return r, nil
		}
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the answer to task %s: %w", c.ID, ctx.Err())
	}
	if r := c.response(); r != nil {
		return r, nil
	}
	return nil, ErrAborted
}

func (c *Submission) response() *Response {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.final < 0 {
		return nil
	}
	r := c.responses[c.final]
	return &r
}

// Acquired is closed when a delegate has acquired the task.
func (c *Submission) Acquired() <-chan struct{} { return c.acquired }

// Done is closed when the task has been answered for good, or aborted before it
// was acquired.
func (c *Submission) Done() <-chan struct{} { return c.done }

// Owner is the id of the delegate that acquired the task, empty before.
func (c *Submission) Owner() string {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.owner
}

// Acquires is how many acquires of the task were granted. More than one, always
// to the same delegate, is right when an answer was lost, and wrong otherwise.
func (c *Submission) Acquires() int {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.acquires
}

// Attempts is how many requests with an answer to the task have arrived, with
// those that a fault has spoiled.
func (c *Submission) Attempts() int {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.attempts
}

// Responses are all answers that were taken in, in their order: those that say
// RUNNING, and repetitions after the final one as well.
func (c *Submission) Responses() []Response {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return slices.Clone(c.responses)
}
