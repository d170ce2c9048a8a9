package clienttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/delegate-io/dlite/task"
)

var errAborted = errors.New("clienttest: the task was aborted before a delegate acquired it")

// Response is the answer of a delegate as it arrived.
type Response struct {
	// ID and Type come from the body. ID is empty if the body has no id.
	ID   string
	Type string
	Code task.Code
	// Error comes from the body. The legacy form has no error: there it is the
	// member error_msg of the data, if the data has one.
	Error string
	// Data is the data, decoded from base64 where the form uses it.
	Data json.RawMessage
	// Form is the form of the body, which the path decides: "legacy", "runner" or
	// "v2" (docs/protocol.md 1 and 2).
	Form string
	// DelegateID is the id of the sender, from the path or the query.
	DelegateID string
	// Attempts is the number of requests with an answer to this task that had
	// arrived by then, including requests that a middleware dropped.
	Attempts int
}

// Submission is a task that a test submitted. It is safe for concurrent use.
type Submission struct {
	// ID is the id of the task.
	ID string

	server   *Server
	acquired chan struct{}
	done     chan struct{}

	// Guarded by server.mu.

	task      *task.Task
	to        string // the only delegate that gets the task, empty for any
	cursor    uint64
	pending   bool
	aborted   bool
	finished  bool
	owner     string // the delegate that acquired the task
	acquires  int
	attempts  int
	responses []Response
	final     int // index of the final response, -1 before it
}

// isFor reports whether the server offers the task to a delegate.
func (s *Submission) isFor(d *delegate) bool {
	if s.to != "" {
		return s.to == d.ID
	}
	return d.supports(s.task.Type)
}

// Submit offers a copy of a task to the delegates that support its type, or that
// registered without types. A task without an id gets one. Submit panics if the
// type is empty or the id was used before.
func (s *Server) Submit(t *task.Task) *Submission { return s.SubmitTo("", t) }

// SubmitTo is [Server.Submit] for one delegate, whichever types it supports. An empty id means all delegates.
func (s *Server) SubmitTo(delegateID string, t *task.Task) *Submission {
	if t.Type == "" {
		panic("clienttest: the task has no type")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := *t
	if c.ID == "" {
		c.ID = s.nextID("task")
	}
	if _, used := s.submissions[c.ID]; used {
		panic(fmt.Sprintf("clienttest: the task id %q was used before", c.ID))
	}
	s.cursor++
	sub := &Submission{
		ID: c.ID, to: delegateID, server: s, task: &c, cursor: s.cursor, pending: true, final: -1,
		acquired: make(chan struct{}), done: make(chan struct{}),
	}
	s.submissions[c.ID] = sub
	s.listed = append(s.listed, sub)
	s.cursorMoved.send()
	return sub
}

// Abort withdraws a task that no delegate has acquired. Otherwise each
// poll asks the delegate that runs the task to stop it, until the answer arrives.
// Abort returns false if the task is unknown or done.
func (s *Server) Abort(taskID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.submissions[taskID]
	switch {
	case sub == nil || sub.finished:
		return false
	case sub.pending:
		sub.aborted = true
		s.finish(sub)
	case !sub.aborted:
		sub.aborted = true
		s.cursor++
		sub.cursor = s.cursor
		s.aborting = append(s.aborting, sub)
		s.cursorMoved.send()
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

// Wait waits for the final answer to the task. An answer with the status RUNNING
// is not final (docs/protocol.md 1). Wait returns the error of the context, or one if the
// task was aborted before a delegate acquired it, or the server is closed.
func (s *Submission) Wait(ctx context.Context) (*Response, error) {
	select {
	case <-s.done:
	case <-s.server.done:
		if r := s.response(); r != nil {
			return r, nil
		}
		return nil, errClosed
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the answer to task %s: %w", s.ID, ctx.Err())
	}
	if r := s.response(); r != nil {
		return r, nil
	}
	return nil, errAborted
}

func (s *Submission) response() *Response {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.final < 0 {
		return nil
	}
	r := s.responses[s.final]
	return &r
}

// Acquired returns a channel that is closed when a delegate acquires the task.
func (s *Submission) Acquired() <-chan struct{} { return s.acquired }

// Done returns a channel that is closed when the final answer arrives, or when
// the task is aborted before a delegate acquired it.
func (s *Submission) Done() <-chan struct{} { return s.done }

// Owner returns the id of the delegate that acquired the task, empty before.
func (s *Submission) Owner() string {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	return s.owner
}

// Acquires returns the number of granted acquires of the task, all by the same
// delegate. More than one is correct only if an answer was lost.
func (s *Submission) Acquires() int {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	return s.acquires
}

// Attempts returns the number of requests with an answer to the task that have
// arrived, including requests that a middleware dropped.
func (s *Submission) Attempts() int {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	return s.attempts
}

// Responses returns all accepted answers in their order: answers with the status
// RUNNING, the final answer and its repetitions.
func (s *Submission) Responses() []Response {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	return slices.Clone(s.responses)
}
