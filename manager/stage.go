package manager

import (
	"encoding/json"
	"time"

	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// Status is where a stage, a step or a single task stands.
type Status string

// The statuses. Skipped is for steps alone.
const (
	Queued  Status = "QUEUED"
	Running Status = "RUNNING"
	Success Status = "SUCCESS"
	Failure Status = "FAILURE"
	Timeout Status = "TIMEOUT"
	Aborted Status = "ABORTED"
	Skipped Status = "SKIPPED"
)

// Ended tells whether the status is final.
func (s Status) Ended() bool { return s != "" && s != Queued && s != Running }

// The values of [StepRequest.RunOn].
const (
	RunOnSuccess = "success"
	RunOnFailure = "failure"
	RunOnAlways  = "always"
)

// StageRequest describes a stage: an init, steps one after the other, and a
// cleanup, all on one delegate (SPEC T1, Q2).
type StageRequest struct {
	// ID is unique among the account's stages and tasks. Empty lets the manager
	// choose. Submitting the same again under the same id finds the first.
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
	// Selectors must all be among the tags of the delegate, whose name is a tag
	// too; case does not matter.
	Selectors []string `json:"selectors,omitempty"`
	// Priority is "NORMAL" or "HIGH". Empty is NORMAL.
	Priority string `json:"priority,omitempty"`
	// Infra says what the stage runs on, by the types of its tasks: "local",
	// CI_DOCKER_* for a delegate that supports them, otherwise local_*; "vm", vm_* or
	// else DLITE_CI_VM_*; "kubernetes", kubernetes_*. Empty is local.
	Infra string `json:"infra,omitempty"`
	// Timeout bounds the stage from its start, without its cleanup. 0 is no bound.
	Timeout task.Millis `json:"timeout_ms,omitempty"`
	// QueueTimeout bounds the wait for a delegate. 0 is [Config.QueueTimeout].
	QueueTimeout task.Millis `json:"queue_timeout_ms,omitempty"`
	// InitTimeout bounds the init. 0 is [Config.TaskTimeout].
	InitTimeout task.Millis `json:"init_timeout_ms,omitempty"`
	// Pipeline and Labels are for people, and for limits: see [Manager.SetLimit].
	// There may be 20 labels.
	Pipeline string            `json:"pipeline,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Retry says when the stage is run again. Nil is never.
	Retry *Retry `json:"retry,omitempty"`
	// Init is the JSON of a [stage.InitRequest], may be empty.
	Init json.RawMessage `json:"init,omitempty"`
	// Steps run in their order. There may be 10,000.
	Steps []StepRequest `json:"steps,omitempty"`
	// Cleanup is the JSON of a [stage.CleanupRequest], may be empty.
	Cleanup json.RawMessage `json:"cleanup,omitempty"`
}

// StepRequest describes a step.
type StepRequest struct {
	// ID is unique in the stage. Empty is "step" and its number, from 1.
	ID string `json:"id,omitempty"`
	// Name is for people. Empty is the id.
	Name string `json:"name,omitempty"`
	// Timeout bounds the step. 0 is the timeout in Data, which is in seconds, or
	// else [Config.TaskTimeout].
	Timeout task.Millis `json:"timeout_ms,omitempty"`
	// RunOn says when the step runs: "success", as long as no step has failed;
	// "failure", only after one has; or "always". Empty is success. No step runs
	// after a failed init, an abort or the stage's time-out.
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
	// Attempts are the runs before this one, see [Retry].
	Attempts []Attempt `json:"attempts,omitempty"`
	// Place counts from 1 while the stage is queued; 0 otherwise (SPEC Q5).
	Place int `json:"place,omitempty"`
	// Reason says why it is queued.
	Reason string `json:"reason,omitempty"`
	// Error says why it has not succeeded.
	Error string `json:"error_msg,omitempty"`
	// DelegateID is the delegate that runs it or ran it.
	DelegateID string      `json:"delegate_id,omitempty"`
	Init       StepState   `json:"init"`
	Steps      []StepState `json:"steps"`
	Cleanup    StepState   `json:"cleanup"`
	// SubmittedAt, StartedAt (its init was acquired) and EndedAt are absent
	// before they come.
	SubmittedAt time.Time `json:"submitted_at"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	EndedAt     time.Time `json:"ended_at,omitzero"`
}

// StepState is the state of an init, a step or a cleanup.
type StepState struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Status is QUEUED until a delegate has taken it.
	Status Status `json:"status"`
	TaskID string `json:"task_id,omitempty"`
	// LogKey is the key of its log in its log service. An init has one too, for a
	// clone's output and for why it failed; the log begins with the first word.
	LogKey string `json:"log_key,omitempty"`
	// Error says why it has not succeeded.
	Error      string            `json:"error_msg,omitempty"`
	ExitCode   int               `json:"exit_code"`
	OutputVars map[string]string `json:"output_vars,omitempty"`
	// Outputs are the declared outputs. The values of secret ones are not shown.
	Outputs []stage.Output `json:"outputs,omitempty"`
	// Artifact is what the step left in its artifact file, base64 in JSON.
	Artifact []byte `json:"artifact,omitempty"`
	// Tests summarises the step's test reports.
	Tests     *stage.TestSummary `json:"tests,omitempty"`
	StartedAt time.Time          `json:"started_at,omitzero"`
	EndedAt   time.Time          `json:"ended_at,omitzero"`
}
