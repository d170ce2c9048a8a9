package client

import (
	"context"
	"time"

	"github.com/delegate-io/dlite/task"
)

// Client is a delegate's connection to a manager (SPEC C1). All methods are
// safe for concurrent use, retry what is worth retrying (SPEC C2) until their
// context ends, and return errors that [errors.Is] tells apart:
// [ErrUnauthorized], [ErrGone], [ErrConflict], [ErrRetryable], [ErrMalformed],
// [ErrTooLarge].
type Client interface {
	// Register makes the delegate known and returns the id that the manager
	// gave it.
	Register(ctx context.Context, r *Registration) (*Delegate, error)

	// Heartbeat tells that the delegate is alive. r.DelegateID is required. It
	// is attempted once: the next one is the retry.
	Heartbeat(ctx context.Context, r *Registration) error

	// Unregister tells that the delegate is leaving.
	Unregister(ctx context.Context, u *Unregistration) error

	// ReportCapacity tells how many stages the delegate runs at once.
	ReportCapacity(ctx context.Context, delegateID string, maxStages int) error

	// Poll lists the tasks that wait for the delegate. With a wait above zero a
	// manager that knows how holds the call for up to that long, until there is
	// something that q.Since has not seen (SPEC C7).
	Poll(ctx context.Context, delegateID string, q PollQuery) (*Pending, error)

	// Acquire takes a task. A nil task without an error means that it went to
	// somebody else. With [ErrMalformed] the manager gave the task away, but
	// what arrived could not be read: answer it as failed.
	Acquire(ctx context.Context, delegateID string, e task.Event) (*task.Task, error)

	// Respond answers a task. Unlike the other calls it goes on for as long as
	// its context allows while the error is worth a retry (SPEC C3). The task
	// says which answer format it wants; only its ID, Type and RunnerResponse
	// are used.
	Respond(ctx context.Context, delegateID string, t *task.Task, r *task.Response) error
}

// Registration describes a delegate to its manager (PROTOCOL 1).
type Registration struct {
	AccountID    string `json:"accountId,omitempty"`
	DelegateName string `json:"delegateName,omitempty"`
	// Token is the account secret. The HTTP client fills it in where the
	// protocol wants it.
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
	// Draining tells our manager to send no new stages. Others ignore it.
	Draining bool `json:"draining,omitempty"`
}

// Unregistration names the delegate that leaves (PROTOCOL 1).
type Unregistration struct {
	DelegateID        string `json:"delegateId,omitempty"`
	HostName          string `json:"hostName,omitempty"`
	NG                bool   `json:"ng,omitempty"`
	DelegateType      string `json:"delegateType,omitempty"`
	IPAddress         string `json:"ipAddress,omitempty"`
	OrgIdentifier     string `json:"orgIdentifier,omitempty"`
	ProjectIdentifier string `json:"projectIdentifier,omitempty"`
}

// Delegate is what a registration returns.
type Delegate struct {
	ID   string
	Name string
}

// PollQuery says how a poll may wait.
type PollQuery struct {
	// Wait is how long the manager may hold the call; it travels in whole
	// seconds, rounded up. Zero asks for an answer at once.
	Wait time.Duration
	// Since is the Cursor of an earlier poll: what that one listed is no reason
	// to end the wait. Empty ends it with anything that is pending.
	Since string
}

// Pending is a poll's answer.
type Pending struct {
	// Events are all tasks that wait for the delegate, seen before or not.
	Events []task.Event
	// Aborted are ids of tasks that the delegate runs and is to stop. Only our
	// manager sends them.
	Aborted []string
	// Held says that the manager understood Wait: poll again at once.
	Held bool
	// Cursor goes into the next poll's Since. Empty unless Held.
	Cursor string
}

// The extension by which a poll waits (SPEC C7). The request's query has wait,
// whole seconds, and since; the answer's header has the cursor, and that the
// header is there says that the manager knows the extension.
const (
	WaitParam    = "wait"
	SinceParam   = "since"
	CursorHeader = "Dlite-Cursor"
)
