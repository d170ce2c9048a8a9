package engine

import (
	"cmp"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
)

const refuseSecrets = expression.Refuse

// valueScope knows one value.
type valueScope struct {
	scope
	value any
}

func (s *valueScope) Lookup(name string) (any, bool) {
	if name == "value" {
		return s.value, true
	}
	return s.scope.Lookup(name)
}

// renderValue renders a value of the scope as a step would use it.
func (t *turn) renderValue(n *Node, path string, value any) (any, error) {
	template, err := expression.Parse("<+value>")
	if err != nil {
		return nil, err
	}
	env := t.environment(n, path, expression.Late)
	env.Scope = &valueScope{scope{t, n}, value}
	if _, authored := value.(expression.Text); !authored {
		env.Record = nil
	}
	return template.Render(env)
}

// announce returns the steps of a stage whose fields are known when it opens. The manager
// prepares their images.
func (t *turn) announce(n *Node, e *element) []Step {
	var steps []Step
	foresight := t.m.turn(t.s, t.now)
	foresight.foreseen = map[string]*Node{}
	foresight.announceBelow(n, e, &steps)
	return steps
}

func (t *turn) announceBelow(parent *Node, e *element, steps *[]Step) {
	for _, below := range e.all() {
		for _, child := range t.foresee(parent, below) {
			if len(*steps) >= maxAnnounced {
				return
			}
			if below.kind == GroupNode {
				t.announceBelow(child, below, steps)
				continue
			}
			if below.step.Type == typeApproval {
				continue
			}
			step := t.identified(child, below)
			step.Spec = t.knownFields(child, below.step.Spec)
			*steps = append(*steps, step)
		}
	}
}

// foresee returns nodes as they will be, without entering them in the state: the node of an
// element, or those of its strategy if that can be expanded already.
func (t *turn) foresee(parent *Node, e *element) []*Node {
	n := &Node{
		Path: childPath(parent.Kind, parent.Path, e.id), Source: e.path, Parent: parent.Path, Kind: e.kind, Identifier: e.id, Name: cmp.Or(e.name, e.id),
	}
	t.foreseen[n.Path] = n
	if e.strategy == nil {
		return []*Node{n}
	}
	n.Kind = StrategyNode
	plan, _, err := t.expand(n, e.strategy)
	if err != nil {
		return nil
	}
	var all []*Node
	for i, it := range plan.iterations {
		child := &Node{
			Path: n.Path + it.postfix, Source: e.path, Parent: n.Path, Kind: e.kind, Identifier: e.id + it.postfix, Name: n.Name + it.postfix,
			Index: i, Total: len(plan.iterations), Postfix: it.postfix, Matrix: it.matrix, Repeat: it.repeat,
		}
		t.foreseen[child.Path] = child
		all = append(all, child)
	}
	return all
}

// knownFields renders the fields of a spec whose values are known now. The command is not announced.
func (t *turn) knownFields(n *Node, spec *definition.Node) map[string]any {
	if spec == nil || spec.Kind != definition.Map {
		return nil
	}
	fields := map[string]any{}
	for _, f := range spec.Fields {
		switch f.Key {
		case "command", "envVariables", "outputVariables", "reports", "preCommand", "postCommand", "args":
			continue
		}
		if value, err := t.render(n, "spec."+f.Key, f.Value); err == nil {
			fields[f.Key] = value
		}
	}
	return fields
}
