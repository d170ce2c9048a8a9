package api

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"
)

// TaskRequest describes a single task. It belongs to no stage and uses no slot. On the wire it may have further members,
// which are passed to the delegate.
type TaskRequest struct {
	// ID is unique among the account's stages and tasks. Empty means a random one.
	ID string `json:"id,omitempty"`
	// Type is the type of the task, for the router of the delegate.
	Type string `json:"type"`
	// Data is the payload, any JSON value.
	Data json.RawMessage `json:"data"`
	// Selectors must all be tags of the delegate. Its name counts as a tag. Case does not matter.
	Selectors []string `json:"selectors,omitempty"`
	// Priority is "NORMAL" or "HIGH". Empty means NORMAL.
	Priority string `json:"priority,omitempty"`
	// TimeoutMS bounds the task, in milliseconds. 0 means the setting of the manager, 1 hour.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// QueueTimeoutMS bounds the wait for a delegate, in milliseconds. 0 means the time-out of the task.
	QueueTimeoutMS int64 `json:"queue_timeout_ms,omitempty"`
	// Retry is the policy for submitting the task again. Nil means never.
	Retry *Retry `json:"retry,omitempty"`
	// Sync makes the call wait for the end of the task, as long as the setting of the manager permits, 10 minutes.
	Sync bool `json:"sync,omitempty"`
}

// maxSync is how long the manager holds a synchronous submission.
const maxSync = 10 * time.Minute

// Task is the state of a single task.
type Task struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// Status is QUEUED, RUNNING, SUCCESS, FAILURE, TIMEOUT or ABORTED.
	Status Status `json:"status"`
	// Reason explains why the task is queued.
	Reason string `json:"reason,omitempty"`
	// Error explains why the task did not succeed.
	Error string `json:"error_msg,omitempty"`
	// Code and Data are the delegate's answer. They are absent without one.
	Code string          `json:"code,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
	// DelegateID is the delegate that runs the task or ran it last.
	DelegateID string `json:"delegate_id,omitempty"`
	// Attempts is the number of earlier attempts. The times describe the current one.
	Attempts    int       `json:"attempts,omitempty"`
	SubmittedAt time.Time `json:"submitted_at"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	EndedAt     time.Time `json:"ended_at,omitzero"`
}

// Ended reports that the status of the task is final.
func (t *Task) Ended() bool { return t.Status.Ended() }

// SubmitTask queues a single task. [Client.WaitTask] waits for its end.
func (c *Client) SubmitTask(ctx context.Context, req TaskRequest) (Task, error) {
	if req.ID == "" {
		req.ID = rand.Text() // so that the call can be repeated
	}
	what := post("api", "tasks").with(req)
	if req.Sync {
		what.hold = maxSync
	}
	return fetch[Task](ctx, c, what)
}

// Task returns a single task.
func (c *Client) Task(ctx context.Context, id string) (Task, error) {
	return fetch[Task](ctx, c, get("api", "tasks", id))
}

// WaitTask waits until a single task has ended, and returns it.
func (c *Client) WaitTask(ctx context.Context, id string) (Task, error) {
	return await(ctx, c, func(t Task) bool { return t.Ended() }, "api", "tasks", id)
}

// AbortTask aborts a single task.
func (c *Client) AbortTask(ctx context.Context, id string) (Task, error) {
	return fetch[Task](ctx, c, post("api", "tasks", id, "abort"))
}
