package agent

import (
	"fmt"
	"net/http"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// Health answers GET /healthz.
type Health struct {
	Version string `json:"version"`
	OK      bool   `json:"ok"`
	// Agent is [Ours] where the agent is this package's, which takes the fields
	// and calls that are marked as ours. Another agent leaves it empty.
	Agent string `json:"agent,omitempty"`
}

// Ours is what this package's agent calls itself.
const Ours = "dlite"

// SetupRequest is the body of POST /setup (PROTOCOL 5).
type SetupRequest struct {
	Network   stage.Network     `json:"network"`
	Volumes   []*stage.Volume   `json:"volumes,omitempty"`
	Envs      map[string]string `json:"envs,omitempty"`
	Secrets   []string          `json:"secrets,omitempty"`
	LogConfig *stage.LogConfig  `json:"log_config,omitempty"`
	Files     []*stage.File     `json:"files,omitempty"`
	// MountDockerSocket gives the engine's socket to every step. Without it nothing is
	// said of it: another agent takes false for a machine without an engine.
	MountDockerSocket bool `json:"mount_docker_socket,omitempty"`
	// ID and Labels are the transaction's. Ours.
	ID     string            `json:"id,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Clone is to be checked out. Ours.
	Clone *stage.Clone `json:"clone,omitempty"`
}

// SetupResponse answers it. Another agent answers {}.
type SetupResponse struct {
	// Log is what there was to say about the init, for people. Ours.
	Log string `json:"log,omitempty"`
}

// StartStepRequest is the body of POST /start_step (PROTOCOL 5).
type StartStepRequest struct {
	stage.Step
	// VolumesActual are volumes that the setup did not name. Ours.
	VolumesActual []*stage.Volume `json:"volumes_actual,omitempty"`
	// Conceal says that the command holds a secret ([driver.Step]). Ours.
	Conceal bool `json:"conceal,omitempty"`
	// Key is what the other calls know this start of the step by, in the place of
	// its id: an agent starts an id once, and the steps of a stage may share one.
	// Empty is the id. Ours; the client sends it to another agent as the id.
	Key string `json:"key,omitempty"`
}

// StepKey is what the other calls know the step by.
func (r *StartStepRequest) StepKey() string {
	if r.Key != "" {
		return r.Key
	}
	return r.ID
}

// StepID is the body of POST /poll_step. ID is the step's key
// ([StartStepRequest.StepKey]), as in all calls about a step.
type StepID struct {
	ID string `json:"id"`
	// Ours leaves everything out of the answer that is not ours: it says the same
	// three times otherwise. Ours.
	Ours bool `json:"dlite,omitempty"`
}

// StreamRequest is the body of POST /stream_output. Offset counts bytes of the
// step's output.
type StreamRequest struct {
	ID     string `json:"id"`
	Offset int64  `json:"offset"`
}

// StopRequest is the body of POST /stop_step, which is ours: the step is stopped
// as [driver.Driver] says of a context that ends, and the answer comes when
// nothing of it runs any more. A step that has ended is stopped; one that is not
// known will not begin. A detached step that can be used goes on until the destroy.
type StopRequest struct {
	ID string `json:"id"`
	// Cause is why, for the step's error.
	Cause string `json:"cause,omitempty"`
}

// PollStepResponse answers POST /poll_step when the step has ended, or at once
// for a detached one, then without Exited.
type PollStepResponse struct {
	Exited    bool              `json:"exited,omitempty"`
	ExitCode  int               `json:"exit_code,omitempty"`
	Error     string            `json:"error,omitempty"`
	OOMKilled bool              `json:"oom_killed,omitempty"`
	Outputs   map[string]string `json:"outputs,omitempty"`
	Envs      map[string]string `json:"envs,omitempty"`
	Artifact  []byte            `json:"artifact,omitempty"`
	OutputV2  []stage.Output    `json:"outputV2,omitempty"`

	// Result and Failure are ours; one of them is set once the step has ended, or
	// a detached one has started. The fields above say the same to other drivers.
	Result  *driver.Result `json:"dlite_result,omitempty"`
	Failure *Failure       `json:"dlite_failure,omitempty"`
	// Length is how many bytes of output there are in all once the step has
	// ended. Ours.
	Length int64 `json:"dlite_length,omitempty"`
}

// Failure is the error of a step that did not come to a [driver.Result].
type Failure struct {
	Error string `json:"error"`
	// Timeout says that the step's own time was over, Stopped that it was asked to
	// stop.
	Timeout bool `json:"timeout,omitempty"`
	Stopped bool `json:"stopped,omitempty"`
}

// DestroyRequest is the body of POST /destroy (PROTOCOL 5).
type DestroyRequest struct {
	LogDrone       bool   `json:"log_drone,omitempty"`
	LogKey         string `json:"log_key,omitempty"`
	StageRuntimeID string `json:"stage_runtime_id,omitempty"`
}

// Error is an agent's answer with a status above 299, and the JSON body of that answer.
type Error struct {
	// Status is the HTTP status that the client received.
	Status int `json:"-"`
	// Message is the agent's error text.
	Message string `json:"error_msg"`
	// Log is the log of an init that failed. Own agents only.
	Log string `json:"log,omitempty"`
}

// Error returns the agent's message, or the status if the message is empty.
func (e *Error) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return fmt.Sprintf("the agent answers %d %s", e.Status, http.StatusText(e.Status))
}

// What is said at a machine's serial port, a line each. The agent says PortReady
// when it waits, and again for each empty line that it gets: after a machine was
// restored from a snapshot that shows that it runs, so that the boot can be sent
// with a time that is right on arrival. It then gets a [Boot] as a line of JSON,
// and says PortBooted when it has taken it over, clock and randomness included, or
// PortFailed, a space and why. Then it closes the port.
const (
	PortReady  = "ready"
	PortBooted = "booted"
	PortFailed = "failed"
)

// Boot is what an agent is told when its machine starts, by whatever way the
// machine's provider has: the user data of a cloud, a serial port. Nothing of it
// is in an image or a snapshot, as it is different for each machine.
type Boot struct {
	// Listen is the address to serve at; empty is ":9079".
	Listen string `json:"listen,omitempty"`
	// CA, Cert and Key are PEM: the machine's own CA and the leaf that both ends
	// use.
	CA   []byte `json:"ca"`
	Cert []byte `json:"cert"`
	Key  []byte `json:"key"`
	// Time is what the machine's clock is set to, in nanoseconds since 1970, and
	// Seed goes into its random state, both before TLS starts: a machine that was
	// restored from a snapshot has a stale clock and shares its random state with
	// all others of that snapshot. Zero and none leave them alone.
	Time int64  `json:"time,omitempty"`
	Seed []byte `json:"seed,omitempty"`
}
