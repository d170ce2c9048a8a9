package api

import (
	"context"
	"encoding/json"
	"time"
)

// Schedule submits a stage or a single task at certain times.
type Schedule struct {
	// ID is unique among the account's schedules.
	ID string `json:"id"`
	// Name is a description for people.
	Name string `json:"name,omitempty"`
	// Cron is the schedule's times. It has five fields (minute, hour, day of the month, month, day of the week), or six
	// with seconds in front. It may also be @hourly, @daily, @weekly, @monthly, @yearly, or an interval like "@every 90m".
	Cron string `json:"cron"`
	// TimeZone is the IANA name of the time zone of Cron. Defaults to UTC. A time that a clock change skips is left out
	// that day. A time that comes twice counts once.
	TimeZone string `json:"time_zone,omitempty"`
	// Missed decides about times that are more than a minute past, because no manager was running. "once" submits one run
	// for all of them, "skip" none, and "all" one for each of the newest 100. Defaults to once.
	Missed string `json:"missed,omitempty"`
	// Overlap decides what happens if the previous run has not ended. "allow" submits another one, "skip" does not.
	// Defaults to allow.
	Overlap string `json:"overlap,omitempty"`
	// Paused disables the schedule. Times that pass while it is paused do not count as missed.
	Paused bool `json:"paused,omitempty"`
	// Stage is the JSON of a [StageRequest], Task is the JSON of a [TaskRequest]. Exactly one of them is set. The id of each
	// run is the id of the schedule and the time, like nightly-20060102T150405Z.
	Stage json.RawMessage `json:"stage,omitempty"`
	Task  json.RawMessage `json:"task,omitempty"`

	// Next is when the schedule is due next. It is zero while the schedule is paused. The manager sets Next and the
	// fields below.
	Next time.Time `json:"next,omitzero"`
	// Last is the last time that was due, or at which a caller triggered the schedule. LastID is the id of its stage or task. LastError is the reason why nothing was submitted.
	Last      time.Time `json:"last,omitzero"`
	LastID    string    `json:"last_id,omitempty"`
	LastError string    `json:"last_error,omitempty"`
}

// scheduleList is the answer of the list of schedules.
type scheduleList struct {
	Schedules []Schedule `json:"schedules"`
}

// triggered is the answer to the trigger of a schedule.
type triggered struct {
	// ID is the id of the stage or task.
	ID string `json:"id"`
}

// Schedules returns the schedules of the account, ordered by id.
func (c *Client) Schedules(ctx context.Context) ([]Schedule, error) {
	list, err := fetch[scheduleList](ctx, c, get("api", "schedules"))
	return list.Schedules, err
}

// Schedule returns a schedule.
func (c *Client) Schedule(ctx context.Context, id string) (Schedule, error) {
	return fetch[Schedule](ctx, c, get("api", "schedules", id))
}

// SetSchedule adds a schedule, or replaces the one with its id.
func (c *Client) SetSchedule(ctx context.Context, s Schedule) (Schedule, error) {
	return fetch[Schedule](ctx, c, put("api", "schedules", s.ID).with(s))
}

// DeleteSchedule removes a schedule. Its submitted stages and tasks continue.
func (c *Client) DeleteSchedule(ctx context.Context, id string) error {
	return c.run(ctx, remove("api", "schedules", id))
}

// TriggerSchedule submits the schedule's stage or task now, in addition to its times, and returns its id. The client does
// not repeat the call.
func (c *Client) TriggerSchedule(ctx context.Context, id string) (string, error) {
	out, err := fetch[triggered](ctx, c, post("api", "schedules", id, "trigger").onlyOnce())
	return out.ID, err
}
