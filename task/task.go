package task

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Task is a unit of work that a manager hands out.
//
// It has the fields of both delegate protocols (docs/protocol.md 1 and 2), so one
// handler serves both. For protocol v2 the client decodes Data and Config from
// base64, and moves the secrets and the account of the request into the task.
//
// A Task that was decoded from JSON keeps the members that this version does not
// know, and encodes them again, also after changes to its fields. The same holds
// for its struct sections. A Task must not be changed concurrently.
type Task struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// Data is the payload, any JSON value. Nil encodes as null.
	Data json.RawMessage `json:"data"`
	// Async reports that no caller waits for the answer.
	Async bool `json:"async,omitempty"`
	// RunnerResponse selects the runner's form of the answer in protocol v1.
	RunnerResponse bool `json:"runnerResponse,omitempty"`
	// Timeout limits the handler's run time, in milliseconds. Zero means no limit.
	Timeout Millis `json:"timeout,omitempty"`
	// Logging holds the log settings of protocol v1.
	Logging Logging `json:"logging,omitzero"`
	// Delegate describes the chosen delegate (protocol v1).
	Delegate Delegate `json:"delegate,omitzero"`
	// Capabilities are kept unchanged and not interpreted.
	Capabilities json.RawMessage `json:"capabilities,omitempty"`

	// Account is the account that owns the task; empty in protocol v1.
	Account string `json:"account,omitempty"`
	// Driver names the infrastructure that the manager chose (protocol v2).
	Driver string `json:"driver,omitempty"`
	// Config configures the driver, any JSON value (protocol v2).
	Config json.RawMessage `json:"config,omitempty"`
	// Forward names another process that must run the task (protocol v2).
	Forward *Forward `json:"forward,omitempty"`
	// Logger holds the log settings of protocol v2.
	Logger *Logger `json:"logger,omitempty"`
	// Secrets are tasks whose answers the payload refers to. They run before the
	// task, in order (protocol v2).
	Secrets []*Task `json:"secrets,omitempty"`

	// Literal reports that Data contains no references to secrets: text of this form is
	// passed on unchanged. A client sets it for data of users that must not reach the
	// secrets of the delegate. It is an extension.
	Literal bool `json:"literal,omitempty"`

	// Traceparent and Tracestate name the parent span of the task's run, in the
	// forms of W3C Trace Context (rule L3). They are an extension and not
	// validated; see [Task.TraceContext].
	Traceparent lenientString `json:"traceparent,omitempty"`
	Tracestate  lenientString `json:"tracestate,omitempty"`

	// extra holds the unknown members as JSON text, see members.go. The sections
	// below have the same field.
	extra string
}

// Logging is the log section of a v1 task.
type Logging struct {
	Token        string            `json:"token,omitempty"`
	Abstractions map[string]string `json:"abstractions,omitempty"`

	extra string
}

// Delegate is the delegate section of a v1 task.
type Delegate struct {
	ID         string `json:"id,omitempty"`
	InstanceID string `json:"instance_id,omitempty"`
	Token      string `json:"token,omitempty"`

	extra string
}

// Forward is the address of another process that must run a v2 task.
type Forward struct {
	Address  string `json:"address"`
	Insecure bool   `json:"insecure,omitempty"`
	Certs    *Certs `json:"certs,omitempty"`

	extra string
}

// Certs are the PEM certificates and key of a forwarded call.
type Certs struct {
	Public  string `json:"public,omitempty"`
	Private string `json:"private,omitempty"`
	CA      string `json:"ca,omitempty"`

	extra string
}

// Logger is the log section of a v2 task: the address of a log service and the
// settings for writing to it (docs/protocol.md 4).
type Logger struct {
	Address           string   `json:"address,omitempty"`
	Insecure          bool     `json:"insecure,omitempty"`
	Token             string   `json:"token,omitempty"`
	Key               string   `json:"key,omitempty"`
	Account           string   `json:"account,omitempty"`
	IndirectUpload    bool     `json:"indirect_upload,omitempty"`
	SkipOpeningStream bool     `json:"skip_opening_stream,omitempty"`
	SkipClosingStream bool     `json:"skip_closing_stream,omitempty"`
	TrimNewLineSuffix bool     `json:"trim_new_line_suffix,omitempty"`
	IncreaseLogLimit  bool     `json:"increase_log_limit,omitempty"`
	Masks             []string `json:"masks,omitempty"`

	extra string
}

// Millis is a duration in whole milliseconds, as it travels.
type Millis int64

// Duration converts m. A value outside the range of [time.Duration] becomes the
// nearest limit.
func (m Millis) Duration() time.Duration {
	const limit = Millis(math.MaxInt64) / Millis(time.Millisecond)
	switch {
	case m > limit:
		return math.MaxInt64
	case m < -limit:
		return math.MinInt64
	}
	return time.Duration(m) * time.Millisecond
}

// taskFieldsOnly is a Task without methods, for encoding/json.
type taskFieldsOnly Task

// UnmarshalJSON decodes a task and keeps its unknown members.
func (t *Task) UnmarshalJSON(b []byte) error {
	var p taskFieldsOnly
	if err := json.Unmarshal(b, &p); err != nil {
		return fmt.Errorf("decoding a task: %w", err)
	}
	*t = Task(p)
	t.keepUnknown(b)
	return nil
}

// MarshalJSON encodes the task with the unknown members that it kept.
func (t *Task) MarshalJSON() ([]byte, error) {
	b, err := encodeWith((*taskFieldsOnly)(t), t.extra)
	if err != nil {
		return nil, fmt.Errorf("encoding a task: %w", err)
	}
	return b, nil
}

// Event announces a task that a delegate may acquire.
type Event struct {
	TaskID   string
	TaskType string
	Account  string
	// Sync reports that a caller waits for the answer (protocol v1).
	Sync bool
	// RunnerType names the kind of runner that must run the task (protocol v2).
	RunnerType string
}
