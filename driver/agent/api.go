package agent

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// Health is the answer to GET /healthz.
type Health struct {
	Version string `json:"version"`
	OK      bool   `json:"ok"`
	// Agent is "dlite" for an agent of this package. Such an agent supports the fields and calls
	// that are marked as extensions. A foreign agent leaves it empty.
	Agent string `json:"agent,omitempty"`
	// Interruption is set when the cloud takes the machine away. Extension.
	Interruption *Interruption `json:"interruption,omitempty"`
}

// Interruption is a notice that the cloud takes the machine away.
type Interruption struct {
	// Action is the announced event: "terminate", "stop" or "hibernate". "rebalance" is only a recommendation to replace the
	// machine, because one of these will probably follow.
	Action string `json:"action"`
	// At is when it happens, or when the recommendation was made. It may be zero.
	At time.Time `json:"at,omitzero"`
}

// agentName is the name by which an agent of this package identifies itself.
const agentName = "dlite"

// SetupRequest is the body of POST /setup.
type SetupRequest struct {
	Network   stage.Network     `json:"network"`
	Volumes   []*stage.Volume   `json:"volumes,omitempty"`
	Envs      map[string]string `json:"envs,omitempty"`
	Secrets   []string          `json:"secrets,omitempty"`
	LogConfig *stage.LogConfig  `json:"log_config,omitempty"`
	Files     []*stage.File     `json:"files,omitempty"`
	// MountDockerSocket mounts the engine's socket into every step. False is not sent: a foreign
	// agent reads an explicit false as "the machine has no engine".
	MountDockerSocket bool `json:"mount_docker_socket,omitempty"`
	// ID and Labels belong to the transaction. Extension.
	ID     string            `json:"id,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Clone is the repository to check out. Extension.
	Clone *stage.Clone `json:"clone,omitempty"`
}

// SetupResponse is the answer to POST /setup. A foreign agent answers {}.
type SetupResponse struct {
	// Log is the log of the init, for people. Extension.
	Log string `json:"log,omitempty"`
}

// StartStepRequest is the body of POST /start_step.
type StartStepRequest struct {
	stage.Step
	// VolumesActual are volumes that the setup did not name. Extension.
	VolumesActual []*stage.Volume `json:"volumes_actual,omitempty"`
	// Conceal reports that the command contains a secret, see [driver.Step]. Extension.
	Conceal bool `json:"conceal,omitempty"`
	// Key identifies this start of the step in the other calls. An agent starts a key once, and
	// steps of a stage may share an id. Empty means the id. Extension; the client sends it to a
	// foreign agent as the id.
	Key string `json:"key,omitempty"`
}

// stepKey returns the identifier of the step in the other calls.
func (r *StartStepRequest) stepKey() string {
	if r.Key != "" {
		return r.Key
	}
	return r.ID
}

// stepID is the body of POST /poll_step. ID is the step's key, as in all calls about a step.
type stepID struct {
	ID string `json:"id"`
	// Own omits the fields of the protocol from the answer, because the extensions repeat their
	// values. Extension.
	Own bool `json:"dlite,omitempty"`
}

// streamRequest is the body of POST /stream_output. Offset counts bytes of the step's output.
type streamRequest struct {
	ID     string `json:"id"`
	Offset int64  `json:"offset"`
}

// stopRequest is the body of POST /stop_step. The call is an extension. The agent stops the step
// as [driver.Driver] describes for a context that ends. It answers when no process of the step
// runs. A step that has ended counts as stopped, and an unknown step never starts. A detached step
// that is ready runs until the destroy.
type stopRequest struct {
	ID string `json:"id"`
	// Cause is the reason, for the step's error.
	Cause string `json:"cause,omitempty"`
}

// pollStepResponse is the answer to POST /poll_step. The agent sends it when the step has ended.
// For a detached step it answers when the step is ready, without Exited.
type pollStepResponse struct {
	Exited    bool              `json:"exited,omitempty"`
	ExitCode  int               `json:"exit_code,omitempty"`
	Error     string            `json:"error,omitempty"`
	OOMKilled bool              `json:"oom_killed,omitempty"`
	Outputs   map[string]string `json:"outputs,omitempty"`
	Envs      map[string]string `json:"envs,omitempty"`
	Artifact  []byte            `json:"artifact,omitempty"`
	OutputV2  []stage.Output    `json:"outputV2,omitempty"`

	// Result and Failure are extensions. One of them is set when the step has ended, or when a
	// detached step is ready. The fields above have the same values for foreign drivers.
	Result  *driver.Result `json:"dlite_result,omitempty"`
	Failure *failure       `json:"dlite_failure,omitempty"`
	// Length is the total output in bytes when the step has ended. Extension.
	Length int64 `json:"dlite_length,omitempty"`
}

// failure is the error of a step that has no [driver.Result].
type failure struct {
	Error string `json:"error"`
	// Timeout reports that the step exceeded its time limit, and Stopped that it was stopped by
	// request.
	Timeout bool `json:"timeout,omitempty"`
	Stopped bool `json:"stopped,omitempty"`
}

// DestroyRequest is the body of POST /destroy.
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
	// Log is the log of an init that failed. Extension.
	Log string `json:"log,omitempty"`
}

// Error returns the agent's message, or the status if the message is empty.
func (e *Error) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return fmt.Sprintf("the agent answers %d %s", e.Status, http.StatusText(e.Status))
}

// Boot is the configuration that an agent receives when its machine starts. The machine's provider
// delivers it, as user data of a cloud or through a serial port. It differs for each machine, so
// images and snapshots contain no part of it.
type Boot struct {
	// Listen is the address to serve at. Empty is ":9079", see [Boot.Address].
	Listen string `json:"listen,omitempty"`
	// CA, Cert and Key are PEM: the machine's own CA, and the leaf that agent and client share.
	CA   []byte `json:"ca"`
	Cert []byte `json:"cert"`
	Key  []byte `json:"key"`
	// Time sets the machine's clock, in nanoseconds since 1970. Seed is added to its random state.
	// The agent applies both before TLS starts: a restored machine has a stale clock and shares
	// its random state with all machines of that snapshot. Zero values change nothing.
	Time int64  `json:"time,omitempty"`
	Seed []byte `json:"seed,omitempty"`
	// Metadata is the address of a metadata service in the form of EC2's, such as http://169.254.169.254, which the agent
	// watches for notices that the cloud takes the machine away. Empty means none.
	Metadata string `json:"metadata,omitempty"`
}

// Address returns the address to serve at: Listen, or ":9079" if it is empty.
func (b *Boot) Address() string { return cmp.Or(b.Listen, defaultListen) }
