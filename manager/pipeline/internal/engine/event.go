package engine

import (
	"encoding/json"
	"time"
)

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	// StageOpened reports that the init of a stage has succeeded at a delegate: steps start at
	// once from now on.
	StageOpened EventKind = "stage-opened"
	// StepEnded reports the result of an attempt of a step. For a background step it reports
	// that the step has started, or could not start; a second one reports its end.
	StepEnded EventKind = "step-ended"
	// StageEnded reports that the manager has ended a stage and its cleanup: because it was
	// finished, aborted, could not be opened, or was lost.
	StageEnded EventKind = "stage-ended"
	// Waits reports why the manager does not take a stage or a step yet. Without a Reason it
	// has taken it.
	Waits EventKind = "waits"
	// TimerFired reports that a timer is due.
	TimerFired EventKind = "timer"
	// Abort aborts the run, a stage, a group or a step.
	Abort EventKind = "abort"
	// Answered is the answer of a person to a node that waits.
	Answered EventKind = "answer"
	// RetryRun runs an ended run again from the stage Node. The outputs of earlier stages are
	// kept.
	RetryRun EventKind = "retry"
)

// Event is something that happened to a run. Events may arrive twice and in any order.
type Event struct {
	Kind EventKind `json:"kind"`
	// Node is the path of the node. An abort without it is an abort of the run.
	Node string `json:"node,omitempty"`
	// Attempt is the attempt of the node that the event belongs to. An abort, an answer and a
	// retry may leave it out. Then the current attempt is meant. For a retry it is the attempt
	// of the run, which is that of its root node.
	Attempt int       `json:"attempt,omitempty"`
	Time    time.Time `json:"time"`
	// Result belongs to step-ended and stage-ended.
	Result *Result `json:"result,omitempty"`
	// Steps are the results of steps that a stage-ended event carries, for steps whose own
	// events have not arrived yet. Result is set in each.
	Steps []StepResult `json:"steps,omitempty"`
	// Timer belongs to timer: the kind from the command.
	Timer TimerKind `json:"timer,omitempty"`
	// Answer belongs to answer.
	Answer *Answer `json:"answer,omitempty"`
	// By names the person or the program behind an abort, an answer or a retry.
	By string `json:"by,omitempty"`
	// Reason is a text for people, for an abort and for waits.
	Reason string `json:"reason,omitempty"`
}

// StepResult is the result of an attempt of a step.
type StepResult struct {
	Node    string `json:"node"`
	Attempt int    `json:"attempt"`
	Result  Result `json:"result"`
}

// Result is how a step or a stage ended.
type Result struct {
	// Failure is empty after a success.
	Failure FailureKind `json:"failure,omitempty"`
	// Message explains a failure to a person.
	Message  string            `json:"message,omitempty"`
	ExitCode *int              `json:"exit_code,omitempty"`
	Outputs  map[string]string `json:"outputs,omitempty"`
	// Report is a description of the results for people, such as failed tests. The engine only keeps it.
	Report json.RawMessage `json:"report,omitempty"`
}

// FailureKind is the kind of a failure.
type FailureKind string

// The kinds of failures. Those up to FailureUnknown are the manager's.
const (
	FailureExitCode     FailureKind = "exit_code"
	FailureTimeout      FailureKind = "timeout"
	FailureImage        FailureKind = "image"
	FailureConnectivity FailureKind = "connectivity"
	FailureOutOfMemory  FailureKind = "out_of_memory"
	FailureDelegateLost FailureKind = "delegate_lost"
	FailureAborted      FailureKind = "aborted"
	FailureRefused      FailureKind = "refused"
	FailureUnknown      FailureKind = "unknown"
	// FailureInfrastructure is an init that failed for another reason.
	FailureInfrastructure FailureKind = "infrastructure"
	// FailureConfiguration is a definition that cannot be carried out, for example an
	// expression that does not resolve.
	FailureConfiguration FailureKind = "configuration"
	// FailureInputTimeout, FailureRejected and FailureMarked follow from people.
	FailureInputTimeout FailureKind = "input_timeout"
	FailureRejected     FailureKind = "rejected"
	FailureMarked       FailureKind = "marked"
)

// Answer is an answer of a person. Which field counts depends on the status of the node.
type Answer struct {
	// Action answers INTERVENTION_WAITING: Retry, Ignore, MarkAsSuccess, MarkAsFailure, Abort,
	// StageRollback, PipelineRollback or RetryStepGroup. MarkAsFailure also ends a step that
	// is RUNNING, which then fails with the error UserMarkedFailure.
	Action string `json:"action,omitempty"`
	// Approve answers APPROVAL_WAITING.
	Approve bool `json:"approve,omitempty"`
	// Inputs answers INPUT_WAITING: values by field. They are plain text and never evaluated.
	Inputs map[string]string `json:"inputs,omitempty"`
	// Comment is kept with the node.
	Comment string `json:"comment,omitempty"`
}
