package task

import "encoding/json"

// DaemonSet is a program that a manager wants to run on a delegate until further notice, with the tasks that the
// program has (docs/protocol.md, section 2).
type DaemonSet struct {
	ID string `json:"daemon_set_id"`
	// Type is the kind of the daemon set. Other delegates run one daemon set of a type.
	Type string `json:"type"`
	// Config describes the program, see docs/daemons.md. It may refer to secrets.
	Config json.RawMessage `json:"config"`
	// SkipUpdate asks the delegate to leave the daemon set as it is: to not start or change it, and to not change its
	// tasks.
	SkipUpdate bool `json:"skip_update"`
	// TaskIDs are the tasks of the daemon set on this delegate.
	TaskIDs []string `json:"task_ids"`
	// Secrets are secret tasks whose answers Config refers to. They are an extension.
	Secrets []*Task `json:"secrets,omitempty"`
}

// DaemonReport is the state of a daemon set on a delegate.
type DaemonReport struct {
	ID   string `json:"daemon_set_id"`
	Type string `json:"type"`
	// Config is the config as the manager sent it, with references in place of secrets.
	Config  json.RawMessage `json:"config"`
	Healthy bool            `json:"healthy"`
	// Error is why the daemon set is not healthy, or why its tasks or its update could not be handed over. It is an
	// extension.
	Error string `json:"error,omitempty"`
}
