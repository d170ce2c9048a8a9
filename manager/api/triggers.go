package api

import (
	"context"
	"iter"
	"net/url"
	"time"
)

// Trigger starts runs of a stored pipeline: when a webhook is called, at times, or for new commits of a Git repository
// and new tags of an image. Kind, Pipeline and, for a webhook, Provider and Secret are required, and Source for the kinds
// git and registry.
type Trigger struct {
	// ID is unique among the triggers of the account: up to 64 letters, digits, _ and -.
	ID string `json:"id"`
	// Kind is webhook, cron, git or registry.
	Kind string `json:"kind"`
	// Disabled starts nothing. Times that pass while a trigger is disabled do not count as missed.
	Disabled bool `json:"disabled,omitempty"`

	// Pipeline is the id of a stored pipeline, InputSetNames are input sets that are stored with it, and Inputs are values
	// by path. The values may have expressions.
	Pipeline      string            `json:"pipeline"`
	InputSetNames []string          `json:"input_set_names,omitempty"`
	Inputs        map[string]string `json:"inputs,omitempty"`
	// Stages selects stages by identifier. Empty means all.
	Stages []string `json:"stages,omitempty"`
	// Labels are the labels of the runs. The manager adds the label trigger, with the id.
	Labels map[string]string `json:"labels,omitempty"`

	// Provider of a webhook is github, gitlab, gitea, bitbucket or custom.
	Provider string `json:"provider,omitempty"`
	// Secret proves the origin of calls: 16 to 256 bytes. The manager never returns it; HasSecret reports that there is
	// one. A change without a secret keeps the present one.
	Secret    string `json:"secret,omitempty"`
	HasSecret bool   `json:"has_secret,omitempty"`
	// Events are the events that start a run. Empty means pushes, tags and pull requests. A custom webhook has none.
	Events []TriggerEvent `json:"events,omitempty"`
	// Branches and Tags are patterns, for example release/*, main and !wip/**. Branches applies to pushes, to the target
	// of pull requests and to comments on them. Tags applies to tags and releases. Empty permits all.
	Branches []string `json:"branches,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	// Forks permits pull requests, and comments on them, whose changes are or may be in another repository.
	Forks bool `json:"forks,omitempty"`

	// Source is the repository that a delegate polls for a trigger of the kind git or registry. Branches and Tags select the branches and
	// tags of a Git repository, together with Events; Tags selects the tags of an image. Empty permits all.
	Source *TriggerSource `json:"source,omitempty"`

	// CommitStatus reports the states of the runs to the Git provider of the commit. It is for webhooks of Git providers and
	// the kind git. Nil reports nothing.
	CommitStatus *CommitStatus `json:"commit_status,omitempty"`

	// Cron has five fields, or is a word such as @daily or @every 90m. TimeZone is a name like Europe/Berlin. Defaults to
	// UTC.
	Cron     string `json:"cron,omitempty"`
	TimeZone string `json:"time_zone,omitempty"`

	// Version counts the changes, from 1. A change with a version other than 0 is refused with status 409 if the trigger
	// has another version. The manager sets the fields below.
	Version   int64     `json:"version,omitempty"`
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	// Next is the next time of a cron trigger.
	Next time.Time `json:"next,omitzero"`
	// Last is when the trigger last started a run, or failed to. LastRun is the id of the last run, and LastError the
	// reason if the last start failed.
	Last      time.Time `json:"last,omitzero"`
	LastRun   string    `json:"last_run,omitempty"`
	LastError string    `json:"last_error,omitempty"`
}

// TriggerSource is a Git repository or an image that delegates poll. The first poll starts nothing: it notes what there
// is. Repository is required.
type TriggerSource struct {
	// Connector is the id of a connector of the pipeline service, of the kind git or registry, with the credentials.
	// Empty means none.
	Connector string `json:"connector,omitempty"`
	// Repository is the address of a Git repository, or its name below the address of the connector; or the name of an
	// image without a tag.
	Repository string `json:"repository"`
	// IntervalSeconds is the time between two polls. Defaults to 60, and is at least 10.
	IntervalSeconds int `json:"interval_seconds,omitempty"`
	// Selectors must all be tags of the delegate that polls.
	Selectors []string `json:"selectors,omitempty"`
	// Digests are tags of an image that start a run when they get another digest, up to 50.
	Digests []string `json:"digests,omitempty"`
	// HostKeys are the lines of a known_hosts file, for Git over SSH. Empty means the file of the delegate's user.
	HostKeys string `json:"host_keys,omitempty"`
	// Insecure permits a registry without TLS.
	Insecure bool `json:"insecure,omitempty"`
}

// TriggerEvent is a type of event: push, tag, pull_request, release or comment.
type TriggerEvent struct {
	Type string `json:"type"`
	// Actions of a pull request are opened, reopened, updated, edited, closed and merged, and by default the first three.
	// The actions of a release are published (the default), updated and deleted, and the actions of a comment created (the default),
	// edited and deleted.
	Actions []string `json:"actions,omitempty"`
}

// triggerPage is a part of a list of triggers. Next continues after it.
type triggerPage struct {
	Triggers []Trigger `json:"triggers"`
	Next     string    `json:"next,omitempty"`
}

// HookAnswer is the answer to the call of a webhook.
type HookAnswer struct {
	// Runs are the runs that the call started. Repeated are runs that an earlier delivery of the same call started.
	Runs     []string `json:"runs,omitempty"`
	Repeated []string `json:"repeated,omitempty"`
	// Ignored is the reason if the call starts nothing.
	Ignored string `json:"ignored,omitempty"`
}

// Triggers yields the triggers of the account. It ends after an error.
func (c *Client) Triggers(ctx context.Context) iter.Seq2[Trigger, error] {
	return pages(ctx, c, "page", url.Values{}, func(p triggerPage) ([]Trigger, string) { return p.Triggers, p.Next }, "api", "triggers")
}

// Trigger returns a trigger.
func (c *Client) Trigger(ctx context.Context, id string) (Trigger, error) {
	return fetch[Trigger](ctx, c, get("api", "triggers", id))
}

// SetTrigger adds a trigger, or replaces the one with its id. The client repeats the call only if Version is 0.
func (c *Client) SetTrigger(ctx context.Context, t Trigger) (Trigger, error) {
	what := put("api", "triggers", t.ID).with(t)
	what.once = t.Version != 0
	return fetch[Trigger](ctx, c, what)
}

// DeleteTrigger removes a trigger.
func (c *Client) DeleteTrigger(ctx context.Context, id string) error {
	return c.run(ctx, remove("api", "triggers", id))
}
