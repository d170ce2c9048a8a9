package api

import (
	"context"
	"time"
)

// Delegate describes a delegate.
type Delegate struct {
	ID       string `json:"id"`
	Name     string `json:"name,omitempty"`
	HostName string `json:"host_name,omitempty"`
	Type     string `json:"type,omitempty"`
	Version  string `json:"version,omitempty"`
	// Group is the group of delegates that can serve each other's transactions. It is empty for a delegate without one.
	Group string `json:"group,omitempty"`
	// State is ALIVE, DRAINING (finishes its stages and takes no new ones) or LOST (stopped sending heartbeats).
	State string   `json:"state"`
	Tags  []string `json:"tags"`
	// TaskTypes lists the task types that the delegate supports. It is empty if the delegate did not say.
	TaskTypes []string `json:"task_types"`
	// MaxStages is how many stages the delegate may run at a time; 0 is unbounded. Stages is how many it runs. Running is
	// the number of its running tasks.
	MaxStages int `json:"max_stages"`
	Stages    int `json:"stages"`
	Running   int `json:"running"`
	// StageIDs are the stages that the delegate runs, and TaskIDs its single tasks.
	StageIDs      []string  `json:"stage_ids,omitempty"`
	TaskIDs       []string  `json:"task_ids,omitempty"`
	RegisteredAt  time.Time `json:"registered_at"`
	LastHeartbeat time.Time `json:"last_heartbeat"`
	// Refused is the last stage that the delegate refused because its machine was too busy. It is absent if there was none.
	Refused *Refusal `json:"refused,omitempty"`
	// History are the newest changes of the delegate, at most 20, the oldest in front.
	History []DelegateChange `json:"history"`
}

// Refusal is a load of a machine, in percent, that made its delegate refuse a stage. Resource is "cpu" or "memory".
type Refusal struct {
	Resource string `json:"resource"`
	Load     int    `json:"load"`
	Limit    int    `json:"limit"`
	// At is the time of the delegate's report, which is its next heartbeat.
	At time.Time `json:"at"`
}

// DelegateChange is a change of a delegate: "registered", "lost", "returned", "drained", "resumed", or "upgraded" for another
// version than before.
type DelegateChange struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	// Version is the version of the delegate after the change.
	Version string `json:"version,omitempty"`
}

// delegateList is the answer of the list of delegates.
type delegateList struct {
	Delegates []Delegate `json:"delegates"`
}

// Delegates returns the delegates of the account in the order of their registration, including lost ones.
func (c *Client) Delegates(ctx context.Context) ([]Delegate, error) {
	list, err := fetch[delegateList](ctx, c, get("api", "delegates"))
	return list.Delegates, err
}

// Drain makes a delegate finish its stages and take no new ones.
func (c *Client) Drain(ctx context.Context, delegate string) error {
	return c.run(ctx, post("api", "delegates", delegate, "drain"))
}

// Undrain lets a drained delegate take new stages.
func (c *Client) Undrain(ctx context.Context, delegate string) error {
	return c.run(ctx, post("api", "delegates", delegate, "resume"))
}
