package definition

// Position is a place in a file. Line and Column count from 1; 0 means unknown. Column counts
// characters.
type Position struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// NodeKind is the kind of a Node.
type NodeKind int

// The kinds of nodes.
const (
	Scalar NodeKind = iota
	List
	Map
)

// Node is a YAML value with its position. Fields that may hold expressions are nodes.
type Node struct {
	Position
	Kind NodeKind
	// Value is the value of a scalar: nil, bool, int64, float64 or string. A string may hold
	// expressions. Block reports that the scalar was written as a block (| or >), where
	// a position within the text cannot be calculated by columns alone.
	Value any
	Block bool
	// Items are the items of a list, Fields those of a map in the order of the file.
	Items  []*Node
	Fields []Field
}

// Field is a key of a map with its value.
type Field struct {
	Key   string
	At    Position
	Value *Node
}

// Pipeline is a pipeline with resolved templates and inputs.
type Pipeline struct {
	Position
	Identifier, Name, Description string
	Org, Project                  string
	Tags                          map[string]string
	Variables                     []*Variable
	Codebase                      *Codebase
	Stages                        []StageItem
	Timeout                       *Node
	Selectors                     *Node
	// Graph reports that at least one stage has dependsOn: then only dependsOn orders the
	// stages.
	Graph bool
	// Document is the whole document with its templates and inputs in place. Write returns it
	// as YAML.
	Document *Node
}

// StageItem is one stage, or stages that run at the same time.
type StageItem struct {
	Position
	Stage    *Stage
	Parallel []*Stage
}

// Variable is a variable of a pipeline, a stage or a group.
type Variable struct {
	Position
	Name        string
	Type        string // String, Number or Secret
	Value       *Node  // nil if it has none; then Default applies
	Default     *Node
	Required    bool
	Description string
}

// Codebase is the repository that stages with cloneCodebase clone. Nil fields are absent.
type Codebase struct {
	Position
	Connector, Repository, Build, Depth, SSLVerify, PRCloneStrategy *Node
	LFS, Debug, FetchTags, PersistCredentials, SparseCheckout       *Node
	SubmoduleStrategy, CloneDirectory, PreFetchCommand, RunAsUser   *Node
	Resources                                                       *Node
}

// Stage is a CI stage. A stage of another type has Skip set: the reader was asked to leave such
// stages out.
type Stage struct {
	Position
	Identifier, Name, Type, Description string
	Skip                                string
	Tags                                map[string]string
	Variables                           []*Variable
	When                                *When
	Strategy                            *Strategy
	FailureStrategies                   []*FailureStrategy
	Selectors                           *Node
	Timeout                             *Node
	// DependsOn names the stages that must succeed before. Nil is absent; empty starts at
	// once.
	DependsOn []string
	Clone     *Node
	// Infrastructure is that of the stage itself, or a copy of the one that useFromStage
	// names.
	Infrastructure *Infrastructure
	Platform       *Node
	Runtime        *Node
	Steps          []StepItem
	Services       []*Node
	Caching        *Node
	SharedPaths    *Node
	// Spec is the whole spec, for expressions such as stage.spec.
	Spec *Node
}

// Infrastructure is the infrastructure of a stage.
type Infrastructure struct {
	Position
	Type string // KubernetesDirect, VM, Docker
	Spec *Node
}

// StepItem is exactly one of a step, a group, and items that run at the same time.
type StepItem struct {
	Position
	Step     *Step
	Group    *Group
	Parallel []StepItem
}

// Step is a step.
type Step struct {
	Position
	Identifier, Name, Type, Description string
	Spec                                *Node
	Timeout                             *Node
	When                                *When
	Strategy                            *Strategy
	FailureStrategies                   []*FailureStrategy
}

// Group is a group of steps.
type Group struct {
	Position
	Identifier, Name  string
	Steps             []StepItem
	When              *When
	Strategy          *Strategy
	FailureStrategies []*FailureStrategy
	Selectors         *Node
	Variables         []*Variable
	SharedPaths       *Node
	Timeout           *Node
}

// When is the condition under which a stage, a group or a step runs.
type When struct {
	Position
	Status    string // Success, Failure or All
	Condition *Node  // nil means true
}

// Strategy repeats a node. Exactly one of Matrix, Parallelism and Repeat is set, or Whole for a
// runtime input of the whole strategy that is not known yet.
type Strategy struct {
	Position
	Matrix         *Matrix
	Parallelism    *Node
	Repeat         *Repeat
	Whole          *Node
	WholeMatrix    bool // Whole is the value of matrix
	MaxConcurrency *Node
	When           *Node
	OnFailure      string // "", ignore or abort
}

// Matrix is a strategy with a child for each combination of values.
type Matrix struct {
	Position
	Axes     []Field // values are lists or expressions
	Exclude  []*Node
	NodeName *Node
}

// Repeat is a strategy with a child for each item or count.
type Repeat struct {
	Position
	Times, Items, Start, End, PartitionSize *Node
	Unit                                    string // "", Percentage or Count
	NodeName                                *Node
}

// FailureStrategy is what happens after a failure of one of the kinds in Errors.
type FailureStrategy struct {
	Position
	Errors []string
	Action *Action
}

// Action is the action of a FailureStrategy.
type Action struct {
	Position
	Type string // Ignore, Retry, MarkAsSuccess, Abort, ...
	// RetryCount, RetryIntervals, OnRetryFailure and Condition belong to Retry, the first two
	// also to RetryStepGroup. Timeout and OnTimeout belong to ManualIntervention.
	RetryCount     *Node
	RetryIntervals []*Node
	OnRetryFailure *Action
	Condition      *Node
	FailAll        *Node
	Timeout        *Node
	OnTimeout      *Action
}

// Options configures Read.
type Options struct {
	// Templates returns the text of a template, by its reference without the scope (account.,
	// org.) and its version label. Nil means that there are no templates.
	Templates func(ref, version string) (Source, bool)
	// InputSets are merged in their order.
	InputSets []Source
	// Inputs are values for runtime inputs by their path, for example
	// pipeline.variables.tag, over those of the input sets.
	Inputs map[string]string
	// Partial keeps inputs without a value as they are, for lint; otherwise they are errors.
	Partial bool
	// SkipOtherStages leaves out stages that are not CI stages, with a warning, instead of an
	// error.
	SkipOtherStages bool
	// StepTypes are types of steps that the operator has added. Their specs are not checked. With
	// RestoreStageCache and SaveStageCache among them, stages may have a cache.
	StepTypes []string
}

// Source is a file.
type Source struct {
	Name string
	Text []byte
}

// Severity is how serious a Problem is.
type Severity int

// The severities.
const (
	Warning Severity = iota + 1
	Error
)

// Problem is an error or a warning at a place of a file.
type Problem struct {
	Position
	Severity Severity `json:"severity"`
	// Code is a stable word for programs, for example unknown-key.
	Code string `json:"code"`
	// Path is the place in the document, for example pipeline.stages[0].stage.spec.
	Path string `json:"path,omitempty"`
	Text string `json:"text"`
	// Hint says what to write instead.
	Hint string `json:"hint,omitempty"`
}

// Problems are the problems of a read, in the order of the files.
type Problems []Problem
