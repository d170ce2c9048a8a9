package pipeline

import (
	"encoding/json"
	"strings"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// summary returns the API's form of a run without its nodes.
func summary(r *store.Run) api.Run {
	var f facts
	_ = json.Unmarshal(r.State, &f) // this package has written it
	return api.Run{
		ID: r.ID, Number: r.Number, Pipeline: r.Pipeline, Status: r.Status, Cause: r.Cause, Branch: r.Branch,
		Name: f.Name, User: f.User, Reason: f.Reason, Labels: f.Labels, CreatedAt: r.Created, EndedAt: r.Ended, Version: r.Version,
		StoredPipeline: f.Stored, StoredVersion: f.StoredVersion,
	}
}

// detail returns the API's form of a run with its nodes.
func detail(live *liveRun) api.Run {
	run := summary(live.run)
	var add func(n *engine.Node)
	add = func(n *engine.Node) {
		run.Nodes = append(run.Nodes, nodeOf(run.ID, n))
		for _, child := range live.machine.Children(live.state, n) {
			add(child)
		}
	}
	add(live.state.Root())
	return run
}

// nodeOf returns the API's form of a node.
func nodeOf(run string, n *engine.Node) api.Node {
	node := api.Node{
		Path: n.Path, Parent: n.Parent, Kind: string(n.Kind), Identifier: n.Identifier, Name: n.Name, Type: n.Type, Order: n.Order,
		Status: string(n.Status), Attempt: n.Attempt, Reason: n.Reason, FailureKind: string(n.FailureKind), ExitCode: n.ExitCode,
		Outputs: n.Outputs, Retries: n.Retries, CreatedAt: n.CreatedAt, StartedAt: n.StartedAt, EndedAt: n.EndedAt, Due: n.Due,
		Matrix: n.Matrix, LogKey: logKey(run, n, n.Number, n.Attempt, n.StageAttempt),
	}
	r := readReport(n.Report)
	node.Tests, node.Artifact, node.ArtifactBytes = r.Tests, r.Artifact, r.ArtifactBytes
	for _, v := range n.Values {
		node.Values = append(node.Values, api.NodeValue(v))
	}
	for _, e := range n.Evaluated {
		node.Evaluated = append(node.Evaluated, api.NodeEvaluated(e))
	}
	for _, in := range n.Inputs {
		node.Inputs = append(node.Inputs, api.NodeInput(in))
	}
	for _, p := range n.Past {
		node.Past = append(node.Past, api.NodeAttempt{
			Attempt: p.Attempt, Status: string(p.Status), Reason: p.Reason, StartedAt: p.StartedAt, EndedAt: p.EndedAt,
			LogKey: logKey(run, n, p.Number, p.Attempt, p.StageAttempt),
		})
	}
	switch n.Kind {
	case engine.StageNode:
		node.StageID = stageID(run, n.Path, n.Attempt)
	case engine.StepNode:
		node.StepID = steps.ID(engine.Step{Node: n.Path, Attempt: n.Attempt})
	}
	return node
}

// logKey returns the key that the manager gives to the log of an attempt of a node, or nothing if the attempt was
// not sent to it. The ids of stages and steps hold only characters that a key may have.
func logKey(run string, n *engine.Node, number, attempt, stageAttempt int) string {
	if number == 0 {
		return ""
	}
	if n.Kind == engine.StageNode {
		return stageID(run, n.Path, attempt) + "/:init"
	}
	stage, _, _ := strings.Cut(n.Path, ".spec.execution.")
	return stageID(run, stage, stageAttempt) + "/" + steps.ID(engine.Step{Node: n.Path, Attempt: attempt})
}
