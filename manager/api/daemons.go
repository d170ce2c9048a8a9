package api

import (
	"context"
	"encoding/json"
	"time"
)

// DaemonSet is a program that runs on every delegate with certain tags until it is removed.
type DaemonSet struct {
	// ID is unique among the account's daemon sets.
	ID string `json:"id"`
	// Type is the kind of the program. A delegate runs one daemon set of a type. If several match, it runs the one with
	// the first id.
	Type string `json:"type"`
	// Config describes the program, its variables, limits and settings. It may refer to secrets, which delegates resolve.
	Config json.RawMessage `json:"config,omitempty"`
	// Secrets are the secret tasks whose answers the config refers to. Each has an id and a type.
	Secrets []json.RawMessage `json:"secrets,omitempty"`
	// Selectors must all be tags of a delegate that runs the daemon set. Its name counts as a tag. Case does not matter.
	// Without selectors every delegate runs it.
	Selectors []string `json:"selectors,omitempty"`
	// Hold makes delegates keep the daemon set as it is: they start, change and stop nothing.
	Hold bool `json:"hold,omitempty"`

	// Tasks are the tasks, ordered by id, without their data. The manager sets Tasks and the fields below.
	Tasks []DaemonTask `json:"tasks,omitempty"`
	// Delegates are the delegates that match, with the state that they reported.
	Delegates []DaemonState `json:"delegates,omitempty"`
	UpdatedAt time.Time     `json:"updated_at,omitzero"`
}

// DaemonTask is a task of a daemon set. The daemon keeps it until it is removed.
type DaemonTask struct {
	// ID is unique among the account's tasks of daemon sets.
	ID string `json:"id"`
	// Data is the payload, any JSON value. Binary is the payload in place of Data, for a daemon that expects something else
	// than JSON.
	Data   json.RawMessage `json:"data,omitempty"`
	Binary []byte          `json:"binary,omitempty"`
	// Secrets are the secret tasks whose answers Data refers to. The daemon also gets their values.
	Secrets []json.RawMessage `json:"secrets,omitempty"`
	// Selectors must be tags of the delegate, in addition to the selectors of the daemon set.
	Selectors []string `json:"selectors,omitempty"`
	// Spread is "all" for every delegate of the daemon set, or "one" for one of them that is neither lost nor draining. A
	// delegate that was cut off may still have a task that has moved to another one. Defaults to all.
	Spread string `json:"spread,omitempty"`
}

// DaemonState is the state of a daemon set on a delegate.
type DaemonState struct {
	DelegateID   string `json:"delegate_id"`
	DelegateName string `json:"delegate_name,omitempty"`
	// Healthy and Error come from the last report of the delegate. Error also names a daemon set that the delegate runs in place of
	// this one.
	Healthy bool   `json:"healthy"`
	Error   string `json:"error_msg,omitempty"`
	// ReportedAt is when the delegate reported this state first. It is zero if the delegate has not reported the daemon set.
	ReportedAt time.Time `json:"reported_at,omitzero"`
	// TaskIDs are the tasks that the delegate must give to its daemon.
	TaskIDs []string `json:"task_ids"`
}

// daemonSetList is the answer of the list of daemon sets.
type daemonSetList struct {
	DaemonSets []DaemonSet `json:"daemon_sets"`
}

// DaemonSets returns the daemon sets of the account, ordered by id.
func (c *Client) DaemonSets(ctx context.Context) ([]DaemonSet, error) {
	list, err := fetch[daemonSetList](ctx, c, get("api", "daemon-sets"))
	return list.DaemonSets, err
}

// DaemonSet returns a daemon set.
func (c *Client) DaemonSet(ctx context.Context, id string) (DaemonSet, error) {
	return fetch[DaemonSet](ctx, c, get("api", "daemon-sets", id))
}

// SetDaemonSet adds a daemon set, or replaces the one with its id, which keeps its tasks.
func (c *Client) SetDaemonSet(ctx context.Context, s DaemonSet) (DaemonSet, error) {
	return fetch[DaemonSet](ctx, c, put("api", "daemon-sets", s.ID).with(s))
}

// DeleteDaemonSet removes a daemon set with its tasks. The delegates stop it.
func (c *Client) DeleteDaemonSet(ctx context.Context, id string) error {
	return c.run(ctx, remove("api", "daemon-sets", id))
}

// SetDaemonTask adds a task to a daemon set. A task cannot be changed: a call with the same id and other values is a
// conflict, see [IsConflict].
func (c *Client) SetDaemonTask(ctx context.Context, set string, t DaemonTask) (DaemonTask, error) {
	return fetch[DaemonTask](ctx, c, put("api", "daemon-sets", set, "tasks", t.ID).with(t))
}

// DeleteDaemonTask removes a task from a daemon set.
func (c *Client) DeleteDaemonTask(ctx context.Context, set, id string) error {
	return c.run(ctx, remove("api", "daemon-sets", set, "tasks", id))
}
