package manager

import (
	"encoding/json"
	"time"

	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// Status is the status of a stage, a step or a single task.
type Status string

// The statuses. Only steps can be [Skipped].
const (
	Queued  Status = "QUEUED"
	Running Status = "RUNNING"
	Success Status = "SUCCESS"
	Failure Status = "FAILURE"
	Timeout Status = "TIMEOUT"
	Aborted Status = "ABORTED"
	Skipped Status = "SKIPPED"
)

// Ended reports whether the status is final.
func (s Status) Ended() bool { return s != "" && s != Queued && s != Running }

// The values of [StepRequest.RunOn].
const (
	runOnSuccess = "success"
	runOnFailure = "failure"
	runOnAlways  = "always"
)

// StageRequest describes a stage: an init, steps that run one after the other, and a
// cleanup, all on one delegate (rules T1 and Q2).
type StageRequest struct {
	// ID is unique among the account's stages and tasks. If it is empty, the manager
	// chooses one. A second submission of the same stage under the same id returns
	// the first one.
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
	// Selectors must all be tags of the delegate. Its name counts as a tag. Case
	// does not matter.
	Selectors []string `json:"selectors,omitempty"`
	// Priority is "NORMAL" or "HIGH". Empty means NORMAL.
	Priority string `json:"priority,omitempty"`
	// Infra is the infrastructure that the stage runs on. It determines the types of
	// its tasks. "local" means CI_DOCKER_* for a delegate that supports them,
	// otherwise local_*. "vm" means vm_*, otherwise DLITE_CI_VM_*. "kubernetes"
	// means kubernetes_*. Empty means local.
	Infra string `json:"infra,omitempty"`
	// Timeout bounds the stage from its start, without its cleanup. 0 means no
	// bound.
	Timeout task.Millis `json:"timeout_ms,omitempty"`
	// QueueTimeout bounds the wait for a delegate. 0 means [Config.QueueTimeout].
	QueueTimeout task.Millis `json:"queue_timeout_ms,omitempty"`
	// InitTimeout bounds the init. 0 means [Config.TaskTimeout].
	InitTimeout task.Millis `json:"init_timeout_ms,omitempty"`
	// Pipeline and Labels describe the stage for people and for limits, see
	// [Manager.SetLimit]. A stage may have 20 labels.
	Pipeline string            `json:"pipeline,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Retry is the policy for running the stage again. Nil means never.
	Retry *Retry `json:"retry,omitempty"`
	// Hold keeps the stage open for further steps. Nil means that the stage has no other
	// steps than Steps. A stage with a hold cannot have a Retry.
	Hold *Hold `json:"hold,omitempty"`
	// Init is the JSON of a [stage.InitRequest]. It may be empty.
	Init json.RawMessage `json:"init,omitempty"`
	// Steps run in their order. A stage may have 10,000.
	Steps []StepRequest `json:"steps,omitempty"`
	// Cleanup is the JSON of a [stage.CleanupRequest]. It may be empty.
	Cleanup json.RawMessage `json:"cleanup,omitempty"`
}

// StepRequest describes a step.
type StepRequest struct {
	// ID is unique in the stage. Empty means "step" and the step's number, from 1.
	ID string `json:"id,omitempty"`
	// Name is a description for people. Empty means the id.
	Name string `json:"name,omitempty"`
	// Timeout bounds the step. 0 means the timeout in Data, which is in seconds, or
	// else [Config.TaskTimeout].
	Timeout task.Millis `json:"timeout_ms,omitempty"`
	// RunOn decides whether the step runs: "success" if no step has failed,
	// "failure" if one has, "always" in both cases. Empty means success. After a
	// failed init, an abort or the stage's time-out no step runs.
	RunOn string `json:"run_on,omitempty"`
	// Data is the JSON of a [stage.ExecuteRequest].
	Data json.RawMessage `json:"data"`
}

// Stage is the state of a stage.
type Stage struct {
	ID        string            `json:"id"`
	Name      string            `json:"name,omitempty"`
	Status    Status            `json:"status"`
	Selectors []string          `json:"selectors"`
	Priority  string            `json:"priority"`
	Infra     string            `json:"infra"`
	Pipeline  string            `json:"pipeline,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Attempts are the earlier attempts, see [Retry].
	Attempts []Attempt `json:"attempts,omitempty"`
	// Place is the stage's place in the queue, from 1. It is 0 if the stage is not
	// queued (rule Q5).
	Place int `json:"place,omitempty"`
	// Reason explains why the stage is queued.
	Reason string `json:"reason,omitempty"`
	// Error explains why the stage did not succeed.
	Error string `json:"error_msg,omitempty"`
	// FailureKind classifies Error.
	FailureKind FailureKind `json:"failure_kind,omitempty"`
	// Open reports that the stage takes further steps, see [Hold].
	Open bool `json:"open,omitempty"`
	// DelegateID is the delegate that runs the stage or ran it.
	DelegateID string      `json:"delegate_id,omitempty"`
	Init       StepState   `json:"init"`
	Steps      []StepState `json:"steps"`
	Cleanup    StepState   `json:"cleanup"`
	// SubmittedAt, StartedAt and EndedAt are absent until they happen. A stage
	// starts when a delegate acquires its init.
	SubmittedAt time.Time `json:"submitted_at"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	EndedAt     time.Time `json:"ended_at,omitzero"`
}

// StepState is the state of an init, a step or a cleanup.
type StepState struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Status is QUEUED until a delegate has acquired the task.
	Status Status `json:"status"`
	TaskID string `json:"task_id,omitempty"`
	// LogKey is the key of the log in its log service. An init has a log too, for
	// clone output and for the reason of a failure. The log begins with the first
	// output.
	LogKey string `json:"log_key,omitempty"`
	// Error explains why the part did not succeed.
	Error string `json:"error_msg,omitempty"`
	// FailureKind classifies Error. It is empty for a part that succeeded, was skipped or
	// has not ended.
	FailureKind FailureKind `json:"failure_kind,omitempty"`
	// ExitCode is the exit code of the step's command, if the delegate reports one.
	ExitCode int `json:"exit_code"`
	// OutputVars are the values of the step's output variables. Secret values are
	// hidden.
	OutputVars map[string]string `json:"output_vars,omitempty"`
	// Outputs are the declared outputs. Secret values are hidden.
	Outputs []stage.Output `json:"outputs,omitempty"`
	// Artifact is the content of the step's artifact file, base64 in JSON.
	Artifact []byte `json:"artifact,omitempty"`
	// Tests summarizes the step's test reports.
	Tests     *stage.TestSummary `json:"tests,omitempty"`
	StartedAt time.Time          `json:"started_at,omitzero"`
	EndedAt   time.Time          `json:"ended_at,omitzero"`
}
