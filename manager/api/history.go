package api

import (
	"context"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// EndedStage is a stage without a run that has ended, as the history has it.
type EndedStage struct {
	ID       string `json:"id"`
	Name     string `json:"name,omitempty"`
	Pipeline string `json:"pipeline,omitempty"`
	Status   Status `json:"status"`
	// Branch is the label "branch".
	Branch string            `json:"branch,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Infra  string            `json:"infra,omitempty"`
	// Delegate is the name of the delegate, or its id if it had no name.
	Delegate    string      `json:"delegate,omitempty"`
	DelegateID  string      `json:"delegate_id,omitempty"`
	Error       string      `json:"error_msg,omitempty"`
	FailureKind FailureKind `json:"failure_kind,omitempty"`
	// Retries is the number of earlier attempts.
	Retries     int       `json:"retries,omitempty"`
	SubmittedAt time.Time `json:"submitted_at"`
	// StartedAt is absent if no delegate took the stage.
	StartedAt time.Time `json:"started_at,omitzero"`
	EndedAt   time.Time `json:"ended_at"`
	// Duration is the time from the start to the end, in milliseconds.
	Duration int64 `json:"duration_ms"`
}

// EndedPage is a part of the list of ended stages.
type EndedPage struct {
	Stages []EndedStage `json:"stages"`
	Next   string       `json:"next,omitempty"`
	// Lost is the number of stages that the manager had forgotten before they could be written.
	Lost uint64 `json:"lost,omitempty"`
}

// Outcomes are the runs, or the stages without a run, that ended on a day.
type Outcomes struct {
	// Day is a day in UTC, for example 2026-01-31.
	Day string `json:"day"`
	// Ended is the number of all, Statuses the number by status.
	Ended    int            `json:"ended"`
	Statuses map[string]int `json:"statuses"`
	// P50 and P95 are the durations in milliseconds that half and 95 % of them did not exceed.
	P50 int64 `json:"p50_ms,omitempty"`
	P95 int64 `json:"p95_ms,omitempty"`
}

type outcomesList struct {
	Days []Outcomes `json:"days"`
}

// NumberedStages is a section of the manager's list of ended stages.
type NumberedStages struct {
	Epoch  string          `json:"epoch"`
	Stages []NumberedStage `json:"stages"`
	// Next is the number of the last one, Missed how many up to it the manager has forgotten.
	Next   uint64 `json:"next"`
	Missed uint64 `json:"missed"`
	// Last is the number of the stage that ended last.
	Last uint64 `json:"last"`
}

// NumberedStage is a stage that has ended.
type NumberedStage struct {
	Stage    Stage  `json:"stage"`
	Delegate string `json:"delegate,omitempty"`
}

// NumberedStages returns the stages that have ended after a number, in the order of their ends. A limit of 0 means as many
// as the manager returns at once. A program that keeps Next continues there, and misses no stage.
func (c *Client) NumberedStages(ctx context.Context, after uint64, limit int) (NumberedStages, error) {
	q := url.Values{"after": {strconv.FormatUint(after, 10)}}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return fetch[NumberedStages](ctx, c, get("api", "ended-stages").asking(q))
}

// EndedStages yields the stages without a run that have ended, the last one first. After and Before of the filter bound
// the end, and Branch is the label "branch". It ends after an error.
func (c *Client) EndedStages(ctx context.Context, f RunFilter) iter.Seq2[EndedStage, error] {
	return pages(ctx, c, "page", f.query(), func(p EndedPage) ([]EndedStage, string) { return p.Stages, p.Next }, "api", "history", "stages")
}

// EndedStage returns a stage without a run that has ended, with its steps. It fails if the history has none with the id.
func (c *Client) EndedStage(ctx context.Context, id string) (Stage, error) {
	return fetch[Stage](ctx, c, get("api", "history", "stages", id))
}

// Outcomes returns what ended by day, the first day first, without days on which nothing ended. Of is "runs" or "stages".
// An empty pipeline selects all. After and Before are the first and the last day in UTC; they default to the last 30
// days.
func (c *Client) Outcomes(ctx context.Context, of, pipeline string, after, before time.Time) ([]Outcomes, error) {
	q := url.Values{}
	set(q, "of", of)
	set(q, "pipeline", pipeline)
	for name, t := range map[string]time.Time{"after": after, "before": before} {
		if !t.IsZero() {
			q.Set(name, t.UTC().Format(time.DateOnly))
		}
	}
	list, err := fetch[outcomesList](ctx, c, get("api", "history", "outcomes").asking(q))
	return list.Days, err
}
