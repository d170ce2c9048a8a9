package client

import (
	"context"
	"time"

	"github.com/delegate-io/dlite/task"
)

// Client is a delegate's connection to a manager (rule C1). All methods are safe
// for concurrent use. They retry temporary failures until their context ends
// (rule C2). [errors.Is] classifies their errors: [ErrUnauthorized], [ErrGone],
// [ErrConflict], [ErrRetryable], [ErrMalformed], [ErrTooLarge].
type Client interface {
	// Register announces the delegate and returns the id that the manager assigned.
	Register(ctx context.Context, r *Registration) (*Delegate, error)

	// Heartbeat reports that the delegate is alive. r.DelegateID is required. It
	// makes one attempt, because the next heartbeat follows soon.
	Heartbeat(ctx context.Context, r *Registration) error

	// Unregister reports that the delegate stops.
	Unregister(ctx context.Context, u *Unregistration) error

	// ReportCapacity reports how many stages the delegate runs at the same time.
	ReportCapacity(ctx context.Context, delegateID string, maxStages int) error

	// Poll lists the tasks that the delegate may acquire. If q.Wait is above zero, a
	// manager with the extension holds the call for up to that time, until there is
	// an entry that q.Since has not seen (rule C7).
	Poll(ctx context.Context, delegateID string, q PollQuery) (*Pending, error)

	// Acquire takes a task. A nil task without an error means that another delegate
	// has it. [ErrMalformed] means that the manager granted the task, but its
	// payload could not be read: the caller must answer the task as failed.
	Acquire(ctx context.Context, delegateID string, e task.Event) (*task.Task, error)

	// Respond answers a task. Unlike the other calls it retries without a limit,
	// until its context ends (rule C3). It uses only the ID, the Type and the
	// RunnerResponse of the task.
	Respond(ctx context.Context, delegateID string, t *task.Task, r *task.Response) error
}

// Registration describes a delegate to its manager (docs/protocol.md 1).
type Registration struct {
	AccountID    string `json:"accountId,omitempty"`
	DelegateName string `json:"delegateName,omitempty"`
	// Token is the account secret. The HTTP client sets it.
	Token         string `json:"delegateRandomToken,omitempty"`
	LastHeartbeat int64  `json:"lastHeartBeat,omitempty"` // Unix time in milliseconds
	DelegateID    string `json:"delegateId,omitempty"`
	// DelegateType is "DOCKER", "KUBERNETES", "SHELL_SCRIPT", ...
	DelegateType       string   `json:"delegateType,omitempty"`
	NG                 bool     `json:"ng,omitempty"`
	PollingModeEnabled bool     `json:"pollingModeEnabled,omitempty"`
	HostName           string   `json:"hostName,omitempty"`
	Connected          bool     `json:"connected,omitempty"`
	KeepAlivePacket    bool     `json:"keepAlivePacket,omitempty"`
	SequenceNum        int      `json:"sequenceNum,omitempty"`
	IP                 string   `json:"ip,omitempty"`
	SupportedTaskTypes []string `json:"supportedTaskTypes,omitempty"`
	Tags               []string `json:"tags,omitempty"`
	HeartbeatAsObject  bool     `json:"heartbeatAsObject,omitempty"`
	Version            string   `json:"version,omitempty"`
	// Draining asks the manager to send no new stages. It is an extension.
	Draining bool `json:"draining,omitempty"`
	// Refused is the last stage that the delegate refused since its previous heartbeat
	// because the machine was too busy. It is an extension.
	Refused *Refusal `json:"refused,omitempty"`
}

// Refusal is a load that made a delegate refuse a stage, in percent. Resource is "cpu" or
// "memory".
type Refusal struct {
	Resource string `json:"resource"`
	Load     int    `json:"load"`
	Limit    int    `json:"limit"`
}

// Unregistration names the delegate that stops (docs/protocol.md 1).
type Unregistration struct {
	DelegateID        string `json:"delegateId,omitempty"`
	HostName          string `json:"hostName,omitempty"`
	NG                bool   `json:"ng,omitempty"`
	DelegateType      string `json:"delegateType,omitempty"`
	IPAddress         string `json:"ipAddress,omitempty"`
	OrgIdentifier     string `json:"orgIdentifier,omitempty"`
	ProjectIdentifier string `json:"projectIdentifier,omitempty"`
}

// Delegate is the result of a registration.
type Delegate struct {
	ID   string
	Name string
	// Host and IP are the addresses that were registered. The poller sets them.
	Host, IP string
}

// PollQuery holds the options of a poll.
type PollQuery struct {
	// Wait is the time for which the manager may hold the call, rounded up to whole
	// seconds. Zero asks for an answer at once.
	Wait time.Duration
	// Since is the Cursor of a previous poll. Entries of that poll do not end the
	// wait. If it is empty, any entry ends the wait.
	Since string
}

// Pending is the answer to a poll.
type Pending struct {
	// Events are all tasks that the delegate may acquire, including those of
	// previous polls.
	Events []task.Event
	// Aborted are the ids of running tasks that the delegate must stop. It is an
	// extension.
	Aborted []string
	// Held reports that the manager supports Wait: the caller may poll again at
	// once.
	Held bool
	// Cursor is the Since of the next poll. It is empty unless Held.
	Cursor string
}

// Names of the extension for polls that wait (rule C7): query parameters, and the
// header of the answer with the cursor. With the header
// the manager shows that it supports the extension.
const (
	waitParam    = "wait"
	sinceParam   = "since"
	cursorHeader = "Dlite-Cursor"
)
