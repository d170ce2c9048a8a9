package engine

import "time"

// CommandKind is the kind of a Command.
type CommandKind string

// The kinds of commands.
const (
	// OpenStage opens a stage at the manager. It ends with a stage-opened or stage-ended event.
	OpenStage CommandKind = "open-stage"
	// AppendSteps appends steps to an open stage. They start at the same time.
	AppendSteps CommandKind = "append-steps"
	// FinishStage ends a stage whose steps have ended. It ends with a stage-ended event.
	FinishStage CommandKind = "finish-stage"
	// AbortStage aborts a stage. It ends with a stage-ended event.
	AbortStage CommandKind = "abort-stage"
	// AbortStep aborts a step. It ends with a step-ended event.
	AbortStep CommandKind = "abort-step"
	// SetTimer asks for a timer event at a time.
	SetTimer CommandKind = "set-timer"
)

// TimerKind is the purpose of a timer.
type TimerKind string

// The kinds of timers.
const (
	TimeoutTimer TimerKind = "timeout"
	RetryTimer   TimerKind = "retry"
	// InputTimer ends the wait for inputs, AnswerTimer that of an intervention.
	InputTimer  TimerKind = "input"
	AnswerTimer TimerKind = "answer"
)

// Command is an order of the engine. It may be carried out twice: Kind, Node and Attempt identify
// it.
type Command struct {
	Kind CommandKind `json:"kind"`
	// Node and Attempt are those of the node that the command is about: the stage for
	// append-steps.
	Node    string `json:"node"`
	Attempt int    `json:"attempt"`
	// Stage and StageAttempt are the stage of the step of abort-step.
	Stage        string `json:"stage,omitempty"`
	StageAttempt int    `json:"stage_attempt,omitempty"`
	// Open belongs to open-stage, Steps to append-steps, Timer and Due to set-timer.
	Open   *Opening  `json:"open,omitempty"`
	Steps  []Step    `json:"steps,omitempty"`
	Timer  TimerKind `json:"timer,omitempty"`
	Due    time.Time `json:"due,omitzero"`
	Reason string    `json:"reason,omitempty"`
}

// Opening is a stage with its rendered fields. Values are nil, bool, int64, float64, string,
// []any and map[string]any. A secret in them is a reference that the delegate resolves.
type Opening struct {
	Identifier string `json:"identifier"`
	Name       string `json:"name,omitempty"`
	// Pipeline, Org and Project identify the pipeline.
	Pipeline string `json:"pipeline"`
	Org      string `json:"org,omitempty"`
	Project  string `json:"project,omitempty"`
	// Infrastructure is nil if the stage has Platform and Runtime instead.
	Infrastructure *Infrastructure `json:"infrastructure,omitempty"`
	Platform       any             `json:"platform,omitempty"`
	Runtime        any             `json:"runtime,omitempty"`
	Selectors      []string        `json:"selectors,omitempty"`
	// Variables are those of the pipeline, then those of the stage.
	Variables []Variable `json:"variables,omitempty"`
	// Clone reports whether the stage clones Repository, the rendered codebase.
	Clone       bool           `json:"clone,omitempty"`
	Repository  map[string]any `json:"repository,omitempty"`
	Caching     any            `json:"caching,omitempty"`
	SharedPaths any            `json:"shared_paths,omitempty"`
	Services    []any          `json:"services,omitempty"`
	// Timeout is the time-out of the stage. 0 means none.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Environment is set for the whole stage, for example the index in a strategy.
	Environment map[string]string `json:"environment,omitempty"`
	// Announced are the steps whose fields are known already, at most 1000. A step that is not
	// announced may still be appended.
	Announced []Step `json:"announced,omitempty"`
}

// Infrastructure is the rendered infrastructure of a stage.
type Infrastructure struct {
	Type string `json:"type"`
	Spec any    `json:"spec,omitempty"`
}

// Variable is a rendered variable.
type Variable struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Secret bool   `json:"secret,omitempty"`
}

// Step is a step with its rendered fields.
type Step struct {
	// Node is the path of the step.
	Node       string `json:"node"`
	Attempt    int    `json:"attempt,omitempty"`
	Identifier string `json:"identifier"`
	// Groups are the identifiers of the groups around the step, the outermost first.
	Groups []string `json:"groups,omitempty"`
	Name   string   `json:"name,omitempty"`
	Type   string   `json:"type"`
	// Spec is the rendered spec. In an announced step, fields that are not known yet are
	// missing.
	Spec map[string]any `json:"spec,omitempty"`
	// Timeout is the time-out of the step. 0 means the default.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Environment holds the loop and status variables.
	Environment map[string]string `json:"environment,omitempty"`
}
