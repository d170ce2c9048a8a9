package engine

import (
	"maps"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
)

// members returns an object of a fixed set of names. It calls a function for a value.
func members(names []string, member func(name string) (any, bool)) *object {
	return &object{member: member, names: func() []string { return slices.Clone(names) }}
}

var pipelineNames = [...]string{
	"identifier", "name", "description", "tags", "executionId", "resumedExecutionId", "sequenceId", "executionUrl", "executionMode",
	"startTs", "selectedStages", "delegateSelectors", "storeType", "repo", "branch", "orgIdentifier", "projectIdentifier",
	"triggeredBy", "triggerType", "properties", "variables", "status", "currentStatus", "liveStatus", "stages",
}

func (t *turn) pipelineObject() *object {
	p, run, root := t.m.pipeline, &t.s.Run, t.s.Root()
	return members(pipelineNames[:], func(name string) (any, bool) {
		switch name {
		case "identifier":
			return p.Identifier, true
		case "name":
			return p.Name, true
		case "description":
			return authoredText(p.Description), true
		case "tags":
			return tagsOf(p.Tags), true
		case "executionId":
			return run.ID, true
		case "resumedExecutionId":
			return nullable(run.Resumed), true
		case "sequenceId":
			return run.Number, true
		case "executionUrl":
			return run.URL, true
		case "executionMode":
			return "NORMAL", true
		case "startTs":
			return millis(run.StartedAt), true
		case "selectedStages":
			return list(run.Stages), true
		case "delegateSelectors":
			return authored(p.Selectors), true
		case "storeType":
			return "INLINE", true
		case "repo", "branch":
			return nil, true // the file is not read from a repository
		case "orgIdentifier":
			return p.Org, true
		case "projectIdentifier":
			return p.Project, true
		case "triggeredBy":
			return map[string]any{"name": run.User, "email": nullable(run.Email)}, true
		case "triggerType":
			if run.TriggerType == "" {
				return "MANUAL", true
			}
			return run.TriggerType, true
		case "properties":
			return t.propertiesObject(), true
		case "variables":
			return t.variablesOf(root, t.m.root), true
		case "status":
			return string(root.Status), true
		case "currentStatus":
			return string(root.Tally.aggregate()), true
		case "liveStatus":
			return string(t.liveStatus(root)), true
		case "stages":
			return t.container(root, t.m.root, rootPath), true
		}
		return nil, false
	})
}

// propertiesObject has the codebase at ci.codebase: the fields that the pipeline has, and otherwise
// the values of codebase.
func (t *turn) propertiesObject() *object {
	written := &object{member: func(string) (any, bool) { return nil, false }, names: func() []string { return nil }}
	if n := t.m.pipeline.Document.Get("pipeline").Get("properties").Get("ci").Get("codebase"); n != nil {
		written = fieldsObject(n)
	}
	facts := t.codebaseObject()
	codebase := &object{
		member: func(name string) (any, bool) {
			if value, ok := written.member(name); ok {
				return value, true
			}
			return facts.member(name)
		},
		names: func() []string { return slices.Concat(written.names(), facts.names()) },
	}
	return members([]string{"ci"}, func(name string) (any, bool) {
		return members([]string{"codebase"}, func(name string) (any, bool) { return codebase, name == "codebase" }), name == "ci"
	})
}

var nodeNames = [...]string{
	"identifier", "name", "type", "description", "identifierPostFix", "executionUrl", "status", "currentStatus", "liveStatus",
	"startTs", "endTs", "retryCount", "matrix", "repeat", "item", "strategy",
}

// object returns a stage, a group or a step. n is nil if its turn has not come: then only what
// the definition says is known.
func (t *turn) object(n *Node, e *element, path string) *object {
	names := nodeNames[:]
	special := t.stepMember
	switch e.kind {
	case StageNode:
		names, special = append(slices.Clone(names), "tags", "variables", "delegateSelectors", "spec"), t.stageMember
	case GroupNode:
		names, special = append(slices.Clone(names), "variables", "steps", "delegateSelectors"), t.groupMember
	case StepNode:
		names = append(slices.Clone(names), "spec", "exitCode", "output", "timeout")
	}
	return members(names, func(name string) (any, bool) {
		if value, ok := special(n, e, path, name); ok {
			return value, true
		}
		switch name {
		case "name":
			return authoredText(e.name), true
		case "type":
			return e.typeName(), true
		case "description":
			return authoredText(e.description()), true
		case "identifier":
			if n == nil {
				return e.id, true
			}
		}
		if n == nil || n.Status == NotStarted {
			return nil, false
		}
		return t.nodeMember(n, name)
	})
}

func (t *turn) nodeMember(n *Node, name string) (any, bool) {
	switch name {
	case "identifier":
		return n.Identifier, true
	case "identifierPostFix":
		return n.Postfix, true
	case "executionUrl":
		return t.s.Run.URL, true
	case "status":
		return string(n.Status), true
	case "liveStatus":
		return string(t.liveStatus(n)), true
	case "currentStatus":
		if n.Status.Ended() || n.Kind == StepNode {
			return string(n.Status), true
		}
		return string(n.Tally.aggregate()), true
	case "startTs":
		return millis(n.StartedAt), true
	case "endTs":
		return millis(n.EndedAt), true
	case "retryCount":
		return int64(n.Retries), true
	case "matrix":
		return plainMap(n.Matrix), n.Matrix != nil
	case "repeat":
		return plainMap(n.Repeat), n.Repeat != nil
	case "item":
		value, ok := n.Repeat["item"]
		return value, ok
	case "strategy":
		return t.strategyObject(n), n.Total > 0
	}
	return nil, false
}

func (t *turn) stageMember(n *Node, e *element, path, name string) (any, bool) {
	switch name {
	case "tags":
		return tagsOf(e.stage.Tags), true
	case "variables":
		return t.variablesOf(n, e), true
	case "delegateSelectors":
		return authored(e.stage.Selectors), true
	case "spec":
		return &object{
			member: func(name string) (any, bool) {
				if name == "execution" {
					return t.executionObject(n, e, path), true
				}
				if e.stage.Spec == nil {
					return nil, false
				}
				return fieldsObject(e.stage.Spec).member(name)
			},
			names: func() []string { return []string{"execution", "infrastructure", "platform", "runtime"} },
		}, true
	}
	return nil, false
}

func (t *turn) executionObject(n *Node, e *element, path string) *object {
	return members([]string{"steps"}, func(name string) (any, bool) {
		return t.container(n, e, path), name == "steps"
	})
}

func (t *turn) groupMember(n *Node, e *element, path, name string) (any, bool) {
	switch name {
	case "variables":
		return t.variablesOf(n, e), true
	case "steps":
		return t.container(n, e, path), true
	case "delegateSelectors":
		return authored(e.group.Selectors), true
	}
	return nil, false
}

func (t *turn) stepMember(n *Node, e *element, _, name string) (any, bool) {
	switch name {
	case "spec":
		return authored(e.step.Spec), true
	case "timeout":
		return authored(e.step.Timeout), true
	case "exitCode":
		if n == nil || n.ExitCode == nil {
			return nil, n != nil
		}
		return int64(*n.ExitCode), true
	case "output":
		if n == nil || !n.Status.Ended() {
			return nil, false
		}
		outputs := make(map[string]any, len(n.Outputs))
		for name, value := range n.Outputs {
			outputs[name] = value
		}
		return map[string]any{"outputVariables": outputs}, true
	}
	return nil, false
}

func (e *element) description() string {
	switch e.kind {
	case StageNode:
		return e.stage.Description
	case StepNode:
		return e.step.Description
	}
	return ""
}

// container returns the children of a pipeline, a stage or a group by identifier.
func (t *turn) container(n *Node, e *element, path string) *object {
	return &object{
		member: func(id string) (any, bool) { return t.child(n, e, path, id) },
		names:  func() []string { return slices.Collect(maps.Keys(e.byID)) },
	}
}

// child returns a child of a container by its identifier, also one of a strategy.
func (t *turn) child(_ *Node, e *element, path, id string) (any, bool) {
	childAt := childPath(e.kind, path, id)
	if n := t.s.Nodes[childAt]; n != nil {
		return t.object(n, t.element(n), childAt), true
	}
	if below := e.byID[id]; below != nil {
		return t.object(nil, below, childAt), true
	}
	return nil, false
}

// variablesOf returns the variables of a pipeline, a stage or a group.
func (t *turn) variablesOf(n *Node, e *element) *object {
	variables := t.variablesIn(e)
	return &object{
		member: func(name string) (any, bool) {
			for _, v := range variables {
				if v.Name == name {
					return variableValue(n, v), true
				}
			}
			return nil, false
		},
		names: func() []string {
			var names []string
			for _, v := range variables {
				names = append(names, v.Name)
			}
			return names
		},
	}
}

func (t *turn) variablesIn(e *element) []*definition.Variable {
	switch e.kind {
	case PipelineNode:
		return t.m.pipeline.Variables
	case StageNode:
		return e.stage.Variables
	case GroupNode:
		return e.group.Variables
	}
	return nil
}

// variableValue returns the value of a variable. A number is text, as in all variables.
func variableValue(n *Node, v *definition.Variable) any {
	field := v.Value
	if field == nil || field.Value == nil {
		field = v.Default
	}
	if field == nil || field.Value == nil {
		return nil
	}
	value := text(field.Value)
	if asked(value) && n != nil {
		if in := n.input("variables." + v.Name); in != nil && in.Given {
			return in.Value
		}
	}
	if v.Type != "Secret" {
		return authoredText(value)
	}
	switch {
	case !strings.Contains(value, "<+"):
		return expression.Secret{ID: value}
	case strings.HasPrefix(strings.TrimSpace(value), "<+secrets."):
		return expression.Text{Value: value}
	}
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value)
	return expression.Text{Value: `<+secrets.getValue("` + escaped + `")>`}
}

var strategyNames = [...]string{"iteration", "iterations", "totalIterations", "identifierPostFix", "currentStatus", "node"}

// strategyObject returns the place of a child in its strategy.
func (t *turn) strategyObject(n *Node) *object {
	return members(strategyNames[:], func(name string) (any, bool) {
		switch name {
		case "iteration":
			return int64(n.Index), true
		case "iterations", "totalIterations":
			return int64(n.Total), true
		case "identifierPostFix":
			return n.Postfix, true
		case "currentStatus":
			p := t.parent(n)
			if p == nil {
				return nil, false
			}
			return string(p.Tally.aggregate()), true
		case "node":
			return t.strategyNodes(n), true
		}
		return nil, false
	})
}

// strategyNodes finds the strategies around a node by the identifier of their stage, group or
// step.
func (t *turn) strategyNodes(n *Node) *object {
	return &object{member: func(id string) (any, bool) {
		for p := n; p != nil; p = t.parent(p) {
			if p.Total > 0 && (p.Identifier == id || t.element(p).id == id) {
				return t.strategyObject(p), true
			}
		}
		return nil, false
	}}
}

func nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func list(texts []string) []any {
	values := make([]any, len(texts))
	for i, text := range texts {
		values[i] = text
	}
	return values
}
