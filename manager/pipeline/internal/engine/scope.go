package engine

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
)

// scope resolves names as seen from a node outwards.
type scope struct {
	t *turn
	n *Node
}

// Names returns the names that Lookup knows.
func (s *scope) Names() []string {
	names := slices.Clone(definition.Roots[:])
	for p := s.n; p != nil; p = s.t.parent(p) {
		if e := s.t.element(p); p.Kind != StrategyNode && e != nil {
			names = slices.AppendSeq(names, maps.Keys(e.byID))
		}
	}
	slices.Sort(names)
	return names
}

// Lookup returns the value of the first part of a name.
func (s *scope) Lookup(name string) (any, bool) {
	t, run := s.t, &s.t.s.Run
	switch name {
	case "pipeline":
		return t.pipelineObject(), true
	case "stage", "step", "stepGroup":
		return s.enclosing(name)
	case "stages":
		return t.container(t.s.Root(), t.m.root, rootPath), true
	case "steps":
		return s.steps()
	case "execution":
		return s.execution()
	case "variables":
		return s.variables(), true
	case "variable":
		return plainMap(run.Variables), true
	case "account":
		return map[string]any{"identifier": run.Account, "name": run.Account, "companyName": run.Account}, true
	case "org":
		return identity(t.m.pipeline.Org), true
	case "project":
		return identity(t.m.pipeline.Project), true
	case "codebase":
		return t.codebaseObject(), true
	case "trigger":
		if len(run.Trigger) == 0 {
			return &object{member: func(string) (any, bool) { return nil, true }, names: func() []string { return triggerNames[:] }}, true
		}
		return outside(run.Trigger, triggerNames[:]), true
	case "strategy", "matrix", "repeat":
		return s.loop(name)
	case "exportedVariables":
		return s.exportedObject(), true
	case "eventPayload":
		return run.Trigger["payload"], true
	case "OnStageSuccess", "OnStageFailure", "OnPipelineSuccess", "OnPipelineFailure":
		return t.onStatus(s.n, t.element(s.n), name), true
	case "Always":
		return true, true
	}
	if slices.Contains(definition.NullRoots[:], name) {
		return nil, true
	}
	return s.byIdentifier(name)
}

// byIdentifier finds a step, a group or a stage by its bare identifier.
func (s *scope) byIdentifier(id string) (any, bool) {
	for p := s.n; p != nil; p = s.t.parent(p) {
		if p.Kind == StrategyNode || p.Kind == StepNode {
			continue
		}
		if value, ok := s.t.child(p, s.t.element(p), p.Path, id); ok {
			return value, true
		}
	}
	return nil, false
}

// enclosing returns the nearest stage, step or group around the node.
func (s *scope) enclosing(name string) (any, bool) {
	kind := map[string]Kind{"stage": StageNode, "step": StepNode, "stepGroup": GroupNode}[name]
	for p := s.n; p != nil; p = s.t.parent(p) {
		if e := s.t.element(p); e != nil && e.kind == kind {
			return s.t.object(p, e, p.Path), true
		}
	}
	return nil, false
}

// steps finds steps of the group around the node, then of the groups outside it and the stage.
func (s *scope) steps() (any, bool) {
	var levels []*object
	for p := s.n; p != nil; p = s.t.parent(p) {
		if p.Kind == GroupNode || p.Kind == StageNode {
			levels = append(levels, s.t.container(p, s.t.element(p), p.Path))
		}
	}
	if len(levels) == 0 {
		return nil, false
	}
	return merged(levels), true
}

func (s *scope) execution() (any, bool) {
	stage := s.t.stageOf(s.n)
	if stage == nil {
		return nil, false
	}
	return s.t.executionObject(stage, s.t.element(stage), stage.Path), true
}

// variables finds variables of the groups around the node, of its stage and of the pipeline.
func (s *scope) variables() *object {
	var levels []*object
	for p := s.n; p != nil; p = s.t.parent(p) {
		if e := s.t.element(p); e != nil && p.Kind != StepNode {
			levels = append(levels, s.t.variablesOf(p, e))
		}
	}
	return merged(levels)
}

// loop returns the values of the nearest strategy.
func (s *scope) loop(name string) (any, bool) {
	if name == "strategy" {
		for p := s.n; p != nil; p = s.t.parent(p) {
			if p.Total > 0 {
				return s.t.strategyObject(p), true
			}
		}
		return nil, false
	}
	var found map[string]any
	for p := s.n; p != nil; p = s.t.parent(p) {
		values := p.Matrix
		if name == "repeat" {
			values = p.Repeat
		}
		if len(values) == 0 {
			continue
		}
		if found == nil {
			found = map[string]any{}
		}
		for key, value := range values { // the nearest strategy wins
			if _, ok := found[key]; !ok {
				found[key] = value
			}
		}
	}
	if found == nil {
		return nil, false
	}
	return found, true
}

// object is a value whose members are made when they are needed.
type object struct {
	member func(name string) (any, bool)
	names  func() []string
}

func (o *object) Member(name string) (any, bool) { return o.member(name) }

func (o *object) Names() []string {
	if o.names == nil {
		return nil
	}
	names := o.names()
	slices.Sort(names)
	return names
}

// merged looks for a member in one object after the other.
func merged(levels []*object) *object {
	return &object{
		member: func(name string) (any, bool) {
			for _, level := range levels {
				if value, ok := level.member(name); ok {
					return value, true
				}
			}
			return nil, false
		},
		names: func() []string {
			var names []string
			for _, level := range levels {
				names = append(names, level.Names()...)
			}
			return names
		},
	}
}

// outside returns values from outside. Known names without a value are null, so that a condition
// on the event of a trigger can be evaluated in a manual run.
func outside(values Values, known []string) *object {
	return &object{
		member: func(name string) (any, bool) {
			if value, ok := values[name]; ok {
				return value, true
			}
			return nil, slices.Contains(known, name)
		},
		names: func() []string { return slices.Concat(known, slices.Collect(maps.Keys(values))) },
	}
}

var codebaseNames = [...]string{
	"build", "branch", "tag", "sourceBranch", "targetBranch", "prNumber", "prTitle", "pullRequestLink", "pullRequestBody",
	"commitSha", "shortCommitSha", "baseCommitSha", "mergeSha", "commitMessage", "commitRef", "gitUser", "gitUserId",
	"gitUserEmail", "gitUserAvatar", "repoUrl", "state",
}

var triggerNames = [...]string{
	"type", "event", "payload", "header", "prNumber", "prTitle", "sourceBranch", "targetBranch", "commitSha", "baseCommitSha",
	"branch", "tag", "gitUser", "sourceRepo", "repoUrl", "action", "connectorRef", "sourceType",
	"prLabels", "artifact", "manifest",
}

func identity(id string) map[string]any { return map[string]any{"identifier": id, "name": id} }

func plainMap(values Values) map[string]any {
	if values == nil {
		return map[string]any{}
	}
	return values
}

func millis(at time.Time) any {
	if at.IsZero() {
		return nil
	}
	return at.UnixMilli()
}

// authored returns a value of the definition whose texts are rendered when they are used.
func authored(n *definition.Node) any {
	if n == nil {
		return nil
	}
	switch n.Kind {
	case definition.List:
		list := make([]any, len(n.Items))
		for i, item := range n.Items {
			list[i] = authored(item)
		}
		return list
	case definition.Map:
		return fieldsObject(n)
	}
	if text, ok := n.Value.(string); ok {
		return authoredText(text)
	}
	return n.Value
}

func authoredText(text string) any {
	if strings.Contains(text, "<+") {
		return expression.Text{Value: text}
	}
	return text
}

// fieldsObject returns the fields of a map of the definition.
func fieldsObject(n *definition.Node) *object {
	return &object{
		member: func(name string) (any, bool) {
			for _, f := range n.Fields {
				if f.Key == name {
					return authored(f.Value), true
				}
			}
			return nil, false
		},
		names: func() []string {
			var names []string
			for _, f := range n.Fields {
				names = append(names, f.Key)
			}
			return names
		},
	}
}

func tagsOf(tags map[string]string) map[string]any {
	values := make(map[string]any, len(tags))
	for name, value := range tags {
		values[name] = authoredText(value)
	}
	return values
}
