package api

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"
)

// PerpetualTask is work that one delegate of those eligible does again and again (docs/perpetual.md).
type PerpetualTask struct {
	// ID is unique among the account's perpetual tasks.
	ID string `json:"id"`
	// Name is a description for people.
	Name string `json:"name,omitempty"`
	// Type selects the handler of the delegate.
	Type string `json:"type"`
	// Config is the configuration that the handler gets, at most 64 KiB. It is stored by the manager and must not contain a
	// secret. A list leaves it out.
	Config json.RawMessage `json:"config,omitempty"`
	// IntervalMS is the time between the beginnings of two runs in milliseconds, from 1,000. A run that takes longer is
	// followed by the next one.
	IntervalMS int64 `json:"interval_ms,omitempty"`
	// Loop means that each run begins when the last one has ended, at most once a second. Either IntervalMS or Loop is set.
	Loop bool `json:"loop,omitempty"`
	// TimeoutMS is the time-out of a run. Defaults to 10 minutes.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Selectors must all be tags or the name of the delegate.
	Selectors []string `json:"selectors,omitempty"`
	// Paused means that no delegate gets the task. Note is the reason, for people.
	Paused bool   `json:"paused,omitempty"`
	Note   string `json:"note,omitempty"`

	// State is the state that the last successful run returned. A list leaves it out. The manager sets State and the fields below.
	State json.RawMessage `json:"state,omitempty"`
	// CreatedAt is when the task was created.
	CreatedAt time.Time `json:"created_at,omitzero"`
	// DelegateID and DelegateName are the holder, empty if there is none, and AssignedAt is since when. Waiting is why there is none.
	DelegateID   string    `json:"delegate_id,omitempty"`
	DelegateName string    `json:"delegate_name,omitempty"`
	AssignedAt   time.Time `json:"assigned_at,omitzero"`
	Waiting      string    `json:"waiting,omitempty"`
	// Token is the fencing token of the last assignment.
	Token uint64 `json:"token,omitempty"`
	// Runs and FailedRuns count the ended runs, Failures the failed ones since the last success.
	Runs       uint64 `json:"runs,omitempty"`
	FailedRuns uint64 `json:"failed_runs,omitempty"`
	Failures   int    `json:"failures,omitempty"`
	// LastRun is when the last run began, DurationMS how long it took, LastSuccess when the last successful one ended.
	LastRun     time.Time `json:"last_run,omitzero"`
	DurationMS  int64     `json:"duration_ms,omitempty"`
	LastSuccess time.Time `json:"last_success,omitzero"`
	// LastError is why the last failed run failed, LastErrorAt when.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	// NextRun is about when the next run begins.
	NextRun time.Time `json:"next_run,omitzero"`
	// Blocked is why the manager cannot take the result of the last run yet.
	Blocked string `json:"blocked,omitempty"`
	// EventsWaiting is the number of events that no consumer has taken.
	EventsWaiting int `json:"events_waiting,omitempty"`
}

// perpetualPage is the answer of the list of perpetual tasks.
type perpetualPage struct {
	Tasks []PerpetualTask `json:"tasks"`
	// Next is the after of the next page, empty at the end.
	Next string `json:"next,omitempty"`
}

// PerpetualTasks returns the perpetual tasks of the account without their configs and states, ordered by id.
func (c *Client) PerpetualTasks(ctx context.Context) ([]PerpetualTask, error) {
	all := []PerpetualTask{}
	for after := ""; ; {
		page, err := fetch[perpetualPage](ctx, c, get("api", "perpetual").asking(url.Values{"after": {after}, "limit": {strconv.Itoa(maxPerpetualPage)}}))
		if err != nil {
			return nil, err
		}
		all = append(all, page.Tasks...)
		if after = page.Next; after == "" {
			return all, nil
		}
	}
}

const maxPerpetualPage = 1000

// PerpetualTask returns a perpetual task.
func (c *Client) PerpetualTask(ctx context.Context, id string) (PerpetualTask, error) {
	return fetch[PerpetualTask](ctx, c, get("api", "perpetual", id))
}

// SetPerpetualTask adds a perpetual task, or replaces the one with its id. A task with another type begins without a state.
func (c *Client) SetPerpetualTask(ctx context.Context, t PerpetualTask) (PerpetualTask, error) {
	return fetch[PerpetualTask](ctx, c, put("api", "perpetual", t.ID).with(t))
}

// DeletePerpetualTask removes a perpetual task. Its run is cancelled.
func (c *Client) DeletePerpetualTask(ctx context.Context, id string) error {
	return c.run(ctx, remove("api", "perpetual", id))
}

// PausePerpetualTask takes a perpetual task from its delegate until it is resumed. Its run is cancelled. The note is shown to people.
func (c *Client) PausePerpetualTask(ctx context.Context, id, note string) (PerpetualTask, error) {
	return fetch[PerpetualTask](ctx, c, post("api", "perpetual", id, "pause").with(PauseRequest{Note: note}))
}

// ResumePerpetualTask ends the pause of a perpetual task.
func (c *Client) ResumePerpetualTask(ctx context.Context, id string) (PerpetualTask, error) {
	return fetch[PerpetualTask](ctx, c, post("api", "perpetual", id, "resume"))
}

// RunPerpetualTask asks for a run now. If one is active, another one follows it.
func (c *Client) RunPerpetualTask(ctx context.Context, id string) (PerpetualTask, error) {
	return fetch[PerpetualTask](ctx, c, post("api", "perpetual", id, "run"))
}
