package pipeline

import (
	"encoding/json"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// Status is the status of a run or a node. The words are those that expressions see.
type Status = engine.Status

// Run is a run of a pipeline.
type Run struct {
	ID string `json:"id"`
	// Number counts the runs of the pipeline from 1.
	Number   int64  `json:"number"`
	Pipeline string `json:"pipeline"`
	// StoredPipeline and StoredVersion are the stored pipeline of the run, if it was started with one.
	StoredPipeline string `json:"stored_pipeline,omitempty"`
	StoredVersion  int64  `json:"stored_version,omitempty"`
	Status         Status `json:"status"`
	// Cause is MANUAL, WEBHOOK, WEBHOOK_CUSTOM or SCHEDULER_CRON.
	Cause  string `json:"cause"`
	Branch string `json:"branch,omitempty"`
	// Name is the name of the pipeline, User the person behind the run.
	Name string `json:"name,omitempty"`
	User string `json:"user,omitempty"`
	// Reason explains the status.
	Reason    string            `json:"reason,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
	EndedAt   time.Time         `json:"ended_at,omitzero"`
	// Version counts the changes of the run.
	Version int64 `json:"version"`
	// Nodes are the pipeline, its stages, groups, steps and strategies as far as their turn has
	// come, parents before their children. Lists of runs have none.
	Nodes []Node `json:"nodes,omitempty"`
}

// Value is a named value that decided something.
type Value = engine.Value

// Evaluated is an expression with its value.
type Evaluated = engine.Evaluated

// Past is an earlier attempt of a node.
type Past = engine.Past

// Node is the state of a part of a pipeline.
type Node struct {
	// Path is the qualified name, for example pipeline.stages.build.spec.execution.steps.test.
	Path   string `json:"path"`
	Parent string `json:"parent,omitempty"`
	// Kind is pipeline, stage, group, step, or strategy for the parent of the nodes that a
	// strategy makes.
	Kind       string `json:"kind"`
	Identifier string `json:"identifier"`
	Name       string `json:"name,omitempty"`
	Type       string `json:"type,omitempty"`
	Order      int    `json:"order"`
	Status     Status `json:"status"`
	Attempt    int    `json:"attempt"`
	// Reason explains the status, and Values are the values that decided it.
	Reason      string            `json:"reason,omitempty"`
	Values      []Value           `json:"values,omitempty"`
	FailureKind string            `json:"failure_kind,omitempty"`
	ExitCode    *int              `json:"exit_code,omitempty"`
	Outputs     map[string]string `json:"outputs,omitempty"`
	Retries     int               `json:"retries,omitempty"`
	CreatedAt   time.Time         `json:"created_at"`
	StartedAt   time.Time         `json:"started_at,omitzero"`
	EndedAt     time.Time         `json:"ended_at,omitzero"`
	Due         time.Time         `json:"due,omitzero"`
	Past        []Past            `json:"past,omitempty"`
	Evaluated   []Evaluated       `json:"evaluated,omitempty"`
	Matrix      map[string]any    `json:"matrix,omitempty"`
	// StageID is the id of a stage at the manager, and StepID the id of a step there. The log of a
	// step has the key StageID/StepID, with the id of its stage.
	StageID string `json:"stage_id,omitempty"`
	StepID  string `json:"step_id,omitempty"`
}

// summary returns the API's form of a run without its nodes.
func summary(r *store.Run) Run {
	var f facts
	_ = json.Unmarshal(r.State, &f) // this package has written it
	return Run{
		ID: r.ID, Number: r.Number, Pipeline: r.Pipeline, Status: Status(r.Status), Cause: r.Cause, Branch: r.Branch,
		Name: f.Name, User: f.User, Reason: f.Reason, Labels: f.Labels, CreatedAt: r.Created, EndedAt: r.Ended, Version: r.Version,
		StoredPipeline: f.Stored, StoredVersion: f.StoredVersion,
	}
}

// detail returns the API's form of a run with its nodes.
func detail(live *liveRun) Run {
	run := summary(live.run)
	var add func(n *engine.Node)
	add = func(n *engine.Node) {
		node := nodeOf(n)
		node.setStage(run.ID, n)
		run.Nodes = append(run.Nodes, node)
		for _, child := range live.machine.Children(live.state, n) {
			add(child)
		}
	}
	add(live.state.Root())
	return run
}

// setStage sets the ids that a node has at the manager.
func (n *Node) setStage(run string, state *engine.Node) {
	switch state.Kind {
	case engine.StageNode:
		n.StageID = stageID(run, state.Path, state.Attempt)
	case engine.StepNode:
		n.StepID = steps.ID(engine.Step{Node: state.Path, Attempt: state.Attempt})
	}
}

func nodeOf(n *engine.Node) Node {
	return Node{
		Path: n.Path, Parent: n.Parent, Kind: string(n.Kind), Identifier: n.Identifier, Name: n.Name, Type: n.Type, Order: n.Order,
		Status: n.Status, Attempt: n.Attempt, Reason: n.Reason, Values: n.Values, FailureKind: string(n.FailureKind), ExitCode: n.ExitCode,
		Outputs: n.Outputs, Retries: n.Retries, CreatedAt: n.CreatedAt, StartedAt: n.StartedAt, EndedAt: n.EndedAt, Due: n.Due, Past: n.Past,
		Evaluated: n.Evaluated, Matrix: n.Matrix,
	}
}
