package api

import "context"

// Queue describes the stages of an account that wait or run. It is at most half a second old.
type Queue struct {
	// Paused reports that the account is paused, and Note is the note of the pause.
	Paused bool   `json:"paused"`
	Note   string `json:"note,omitempty"`
	// Waiting and Running count the stages of the account.
	Waiting int `json:"waiting"`
	Running int `json:"running"`
	// Groups are the account, its pipelines and labels with stages or a limit, those with the most waiting stages first:
	// at most 1,000.
	Groups []QueueGroup `json:"groups"`
	// Needs are the waiting stages by what they need: at most 50, the needs of the next stage first.
	Needs []QueueNeed `json:"needs"`
}

// QueueGroup counts the stages of a group.
type QueueGroup struct {
	// Group is "account", "pipeline:NAME", or "label:NAME=VALUE".
	Group   string `json:"group"`
	Waiting int    `json:"waiting"`
	Running int    `json:"running"`
	// OldestMS is how long the oldest stage has waited, in milliseconds.
	OldestMS int64 `json:"oldest_waited_ms,omitempty"`
	// Max is the limit of the group, or 0. Used is the number of stages that count for it, with those that are offered to
	// a delegate.
	Max  int `json:"max,omitempty"`
	Used int `json:"used,omitempty"`
}

// QueueNeed counts stages that wait with the same needs.
type QueueNeed struct {
	Selectors []string `json:"selectors"`
	Waiting   int      `json:"waiting"`
	// OldestMS is how long the oldest of them has waited, in milliseconds.
	OldestMS int64 `json:"oldest_waited_ms"`
	// Reason is the reason of each of the stages. Detail counts the delegates by the reason why they do not take them,
	// for example "needs tag gpu: 3 of 5 delegates lack it, 2 are full (build-7, build-8)".
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
}

// Queue returns what waits and runs.
func (c *Client) Queue(ctx context.Context) (Queue, error) {
	return fetch[Queue](ctx, c, get("api", "queue"))
}

// PauseRequest is the body of a pause.
type PauseRequest struct {
	// Note says why, for people: one line, at most 1 KiB. It is part of the reason of stages that wait.
	Note string `json:"note,omitempty"`
}

// Pause stops the assignment of stages and single tasks of the account. Submissions wait, and running stages continue.
// The note says why, for people, and may be empty.
func (c *Client) Pause(ctx context.Context, note string) error {
	return c.run(ctx, post("api", "pause").with(PauseRequest{note}))
}

// Resume ends a pause of the account.
func (c *Client) Resume(ctx context.Context) error { return c.run(ctx, post("api", "resume")) }

// AbortResult is the result of the abort of one of several stages.
type AbortResult struct {
	ID string `json:"id"`
	// Status is the status of the stage, if it is known.
	Status Status `json:"status,omitempty"`
	// Error is empty if the manager has aborted the stage, or if it had ended.
	Error string `json:"error_msg,omitempty"`
}

// AbortRequest aborts several stages.
type AbortRequest struct {
	// Stages are the ids of the stages, at most 1,000.
	Stages []string `json:"stages"`
}

// abortResults is the answer to an abort of several stages.
type abortResults struct {
	Results []AbortResult `json:"results"`
}

// AbortStages aborts up to 1,000 stages, and returns the result of each in the order of the ids.
func (c *Client) AbortStages(ctx context.Context, ids ...string) ([]AbortResult, error) {
	out, err := fetch[abortResults](ctx, c, post("api", "abort").with(AbortRequest{ids}))
	return out.Results, err
}
