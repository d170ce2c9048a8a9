package task

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Task is one unit of work as a manager hands it out.
//
// It carries the fields of both delegate protocols (PROTOCOL 1 and 2), so that
// a handler is written once: for protocol v2 the client has decoded Data and
// Config from base64 and moved the request's secrets and account into the task.
//
// Fields that this version does not know survive: a Task that was decoded from
// JSON encodes again with all of them, whatever was changed on the known ones.
// The same holds for the sections that are structs here.
// A Task is not safe for concurrent mutation.
type Task struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// Data is the payload for the handler, any JSON value. Nil encodes as null.
	Data json.RawMessage `json:"data"`
	// Async says that whoever submitted the task does not wait for the answer.
	Async bool `json:"async,omitempty"`
	// RunnerResponse selects the runner's answer format in protocol v1.
	RunnerResponse bool `json:"runnerResponse,omitempty"`
	// Timeout bounds the handler's run, in milliseconds. Zero means no bound.
	Timeout Millis `json:"timeout,omitempty"`
	// Logging tells where the task's log goes, as far as a v1 manager says so.
	Logging Logging `json:"logging,omitzero"`
	// Delegate is what a v1 manager says about the delegate it chose.
	Delegate Delegate `json:"delegate,omitzero"`
	// Capabilities is passed through untouched.
	Capabilities json.RawMessage `json:"capabilities,omitempty"`

	// Account is the account that owns the task; empty in protocol v1.
	Account string `json:"account,omitempty"`
	// Driver names the infrastructure that a v2 manager wants.
	Driver string `json:"driver,omitempty"`
	// Config configures the driver, any JSON value (protocol v2).
	Config json.RawMessage `json:"config,omitempty"`
	// Forward names another process that is to run the task (protocol v2).
	Forward *Forward `json:"forward,omitempty"`
	// Logger tells where the task's log goes (protocol v2).
	Logger *Logger `json:"logger,omitempty"`
	// Secrets are tasks whose answers the payload refers to; they run first and
	// in order (protocol v2).
	Secrets []*Task `json:"secrets,omitempty"`

	// Traceparent and Tracestate name the span that the task's run is a part of,
	// in the forms of W3C Trace Context (SPEC L3). Ours: plain managers do not
	// send them. They are as they came; see [Task.TraceContext].
	Traceparent Text `json:"traceparent,omitempty"`
	Tracestate  Text `json:"tracestate,omitempty"`

	// extra holds the unknown members, see unknown. So do the sections below.
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

// Forward is the address of another process that is to run a v2 task.
type Forward struct {
	Address  string `json:"address"`
	Insecure bool   `json:"insecure,omitempty"`
	Certs    *Certs `json:"certs,omitempty"`

	extra string
}

// Certs are PEM texts for a forwarded call.
type Certs struct {
	Public  string `json:"public,omitempty"`
	Private string `json:"private,omitempty"`
	CA      string `json:"ca,omitempty"`

	extra string
}

// Logger is the log section of a v2 task: an address of a log service
// (PROTOCOL 4) and how to write to it.
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

// Millis is a span of time that travels as a whole number of milliseconds.
type Millis int64

// Duration converts m. Spans too long for a time.Duration become the longest,
// of either sign.
func (m Millis) Duration() time.Duration {
	const most = Millis(math.MaxInt64) / Millis(time.Millisecond)
	switch {
	case m > most:
		return math.MaxInt64
	case m < -most:
		return math.MinInt64
	}
	return time.Duration(m) * time.Millisecond
}

// plain has Task's fields without its methods, for encoding/json.
type plain Task

// UnmarshalJSON decodes a task and keeps the fields that it does not know.
func (t *Task) UnmarshalJSON(b []byte) error {
	var p plain
	if err := json.Unmarshal(b, &p); err != nil {
		return fmt.Errorf("decoding a task: %w", err)
	}
	*t = Task(p)
	t.keepUnknown(b)
	return nil
}

// MarshalJSON encodes the task with the unknown fields it was decoded with.
func (t *Task) MarshalJSON() ([]byte, error) {
	b, err := encodeWith((*plain)(t), t.extra)
	if err != nil {
		return nil, fmt.Errorf("encoding a task: %w", err)
	}
	return b, nil
}

// Event announces a task that waits to be acquired.
type Event struct {
	TaskID   string
	TaskType string
	Account  string
	// Sync says that a caller waits for the answer (protocol v1).
	Sync bool
	// RunnerType is the kind of runner that is wanted (protocol v2).
	RunnerType string
}
