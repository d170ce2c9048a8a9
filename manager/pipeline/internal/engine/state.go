package engine

import (
	"encoding/json"
	"time"
)

// State is the state of a run: its request, and its nodes by path. The run never
// changes, so only changed nodes need to be saved. A State is not safe for concurrent use.
type State struct {
	Run   Run              `json:"run"`
	Nodes map[string]*Node `json:"nodes"`

	// starts is the largest Number of the nodes, or 0 if it is not known.
	starts int
}

// Put adds a node, or replaces the one with its path, for example by the one that another process has saved.
func (s *State) Put(n *Node) {
	s.Nodes[n.Path] = n
	if s.starts > 0 {
		s.starts = max(s.starts, n.lastNumber())
	}
}

// lastNumber returns the largest number of the attempts.
func (n *Node) lastNumber() int {
	last := n.Number
	for _, p := range n.Past {
		last = max(last, p.Number)
	}
	return last
}

// number returns the number of the next start of a stage or step.
func (s *State) number() int {
	if s.starts == 0 {
		for _, n := range s.Nodes {
			s.starts = max(s.starts, n.lastNumber())
		}
	}
	s.starts++
	return s.starts
}

// Root returns the node of the pipeline. Its status is the status of the run.
func (s *State) Root() *Node { return s.Nodes[rootPath] }

const rootPath = "pipeline"

// Run is the request that started a run. It never changes.
type Run struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	// Number counts the runs of the pipeline, from 1.
	Number int64 `json:"number,omitempty"`
	// StartedAt is the time that expressions see as the current time.
	StartedAt time.Time `json:"started_at"`
	// URL is the address of the run for people.
	URL string `json:"url,omitempty"`
	// TriggerType is MANUAL, WEBHOOK, WEBHOOK_CUSTOM, SCHEDULER_CRON or ARTIFACT. Empty means MANUAL.
	TriggerType string `json:"trigger_type,omitempty"`
	// User and Email name the person or the program that started the run.
	User  string `json:"user,omitempty"`
	Email string `json:"email,omitempty"`
	// Trigger and Codebase are the values of the expressions trigger.* and codebase.*. They
	// come from outside and are never evaluated. Nil means that the run has none.
	Trigger  Values `json:"trigger,omitempty"`
	Codebase Values `json:"codebase,omitempty"`
	// Variables are the values of variable.*, with the members org and account.
	Variables Values `json:"variables,omitempty"`
	// Stages selects stages by identifier. The others are skipped. Empty means all.
	Stages []string `json:"stages,omitempty"`
	// HoldFailed makes a step that failed wait this long for the answer of a person, if no failure
	// strategy matches. Its stage stays open. 0 does not wait.
	HoldFailed time.Duration `json:"hold_failed,omitempty"`
	// Resumed is the id of the run that this run continues, if any.
	Resumed string `json:"resumed,omitempty"`
}

// Kind is the kind of a Node.
type Kind string

// The kinds of nodes. A strategy node is the parent of the nodes that a strategy makes from one
// stage, group or step.
const (
	PipelineNode Kind = "pipeline"
	StageNode    Kind = "stage"
	GroupNode    Kind = "group"
	StepNode     Kind = "step"
	StrategyNode Kind = "strategy"
)

// Node is the state of a pipeline, a stage, a group, a step or a strategy. It exists from the
// moment that its turn comes.
type Node struct {
	// Path is the qualified name, for example
	// pipeline.stages.build_0.spec.execution.steps.test.
	Path string `json:"path"`
	// Source is the path in the definition: Path without the postfixes of strategies.
	Source     string `json:"source"`
	Parent     string `json:"parent,omitempty"`
	Kind       Kind   `json:"kind"`
	Identifier string `json:"identifier"`
	Name       string `json:"name,omitempty"`
	Type       string `json:"type,omitempty"`
	// Order is the place of the node among the children of its parent, from 0.
	Order int `json:"order"`

	Status Status `json:"status"`
	// Attempt counts the times that the node was started, from 1. Events of an earlier
	// attempt are ignored.
	Attempt int `json:"attempt"`
	// Number counts the starts of the stages and steps of a run, from 1: those that were sent to
	// the manager. 0 means that this attempt was not.
	Number int `json:"number,omitempty"`
	// StageAttempt is the attempt of the stage in which a step was started.
	StageAttempt int `json:"stage_attempt,omitempty"`
	// Reason explains the status to a person, and Values are the values that decided it.
	Reason string  `json:"reason,omitempty"`
	Values []Value `json:"values,omitempty"`
	// FailureKind is the kind of the failure, one of the Failure constants.
	FailureKind FailureKind `json:"failure_kind,omitempty"`
	ExitCode    *int        `json:"exit_code,omitempty"`
	// Outputs are the output variables of a step.
	Outputs map[string]string `json:"outputs,omitempty"`
	// Report is the report of the result of a step.
	Report json.RawMessage `json:"report,omitempty"`
	// Retries counts the retries by failure strategies, without those by people.
	Retries   int       `json:"retries,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	StartedAt time.Time `json:"started_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// Due is the time at which a queued or waiting node continues by itself.
	Due time.Time `json:"due,omitzero"`
	// Past are the earlier attempts, the oldest first, at most 20.
	Past []Past `json:"past,omitempty"`
	// Evaluated are the expressions that were evaluated for the node, at most 100.
	Evaluated []Evaluated `json:"evaluated,omitempty"`
	// Inputs are the inputs that a person is asked for, or has given.
	Inputs []Input `json:"inputs,omitempty"`
	// Answered names the person who answered last.
	Answered string `json:"answered,omitempty"`

	// Index, Total, Postfix, Matrix and Repeat describe a child of a strategy.
	Index   int    `json:"index,omitempty"`
	Total   int    `json:"total,omitempty"`
	Postfix string `json:"postfix,omitempty"`
	Matrix  Values `json:"matrix,omitempty"`
	Repeat  Values `json:"repeat,omitempty"`

	// Children are the paths of the children of a strategy node. The children of other nodes
	// follow from the definition, see [Machine.Children].
	Children []string `json:"children,omitempty"`
	// Failures are the identifiers of steps of a stage that failed, at most 100.
	Failures []string `json:"failures,omitempty"`

	progress
}

// progress is the part of a node that only the engine uses.
type progress struct {
	// Next is the place of the next item of a container, or of the next child of a strategy.
	Next int `json:"next,omitempty"`
	// Active counts the children that were started and have not ended.
	Active int `json:"active,omitempty"`
	// Limit is how many children of a strategy may be active. 0 means all.
	Limit int `json:"limit,omitempty"`
	// Tally counts the nodes below by their final status, down to strategy nodes.
	Tally tally `json:"tally,omitempty"`
	// Waiting counts the nodes below that wait for a person.
	Waiting tally `json:"waiting,omitempty"`
	// Waits is the status that the ancestors count in Waiting.
	Waits Status `json:"waits,omitempty"`
	// Ending is the final status of a node that is being ended, and Why its reason.
	Ending Status `json:"ending,omitempty"`
	Why    string `json:"why,omitempty"`
	// Stop is why a container starts no more children.
	Stop string `json:"stop,omitempty"`
	// Again makes a group start again when its children have ended.
	Again bool `json:"again,omitempty"`
	// Opened, Finishing and Open belong to a stage: the delegate has opened it, the engine has
	// asked for its end, and the manager has not confirmed the end.
	Opened    bool `json:"opened,omitempty"`
	Finishing bool `json:"finishing,omitempty"`
	Open      bool `json:"open,omitempty"`
	// Sent reports that a step was appended to its stage and has not ended there.
	Sent bool `json:"sent,omitempty"`
	// Backgrounds are the paths of the background steps of a stage.
	Backgrounds []string `json:"backgrounds,omitempty"`
	// Background reports a background step that has started.
	Background bool `json:"background,omitempty"`
	// Blocked reports a stage that did not run because of one that it depends on.
	Blocked bool `json:"blocked,omitempty"`
	// RolledBack reports a failure that does not count for OnPipelineFailure.
	RolledBack bool `json:"rolled_back,omitempty"`
}

// Value is a named value that decided something.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Past is an earlier attempt of a node.
type Past struct {
	Attempt int `json:"attempt"`
	// Number and StageAttempt are the values of the node at that time.
	Number       int       `json:"number,omitempty"`
	StageAttempt int       `json:"stage_attempt,omitempty"`
	Status       Status    `json:"status"`
	Reason       string    `json:"reason,omitempty"`
	StartedAt    time.Time `json:"started_at,omitzero"`
	EndedAt      time.Time `json:"ended_at,omitzero"`
}

// Evaluated is an expression with its value at a time. A secret is never evaluated: its value is
// the reference.
type Evaluated struct {
	// Field is the field that holds the expression, for example spec.command.
	Field string `json:"field,omitempty"`
	// Text is the expression, Value its value as text and Source its origin.
	Text   string    `json:"text"`
	Value  string    `json:"value"`
	Source string    `json:"source,omitempty"`
	Error  string    `json:"error,omitempty"`
	Time   time.Time `json:"time"`
}

// Input is a runtime input of a node that is asked for while the run is running.
type Input struct {
	// Field is the field of the node, for example spec.command, and Text its definition.
	Field string `json:"field"`
	Text  string `json:"text"`
	// Value is the answer. Given reports that there is one.
	Value string `json:"value,omitempty"`
	Given bool   `json:"given,omitempty"`
}
