package engine

import (
	"errors"
	"fmt"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// plainValue returns a value of the definition as it is.
func plainValue(n *definition.Node) any {
	if n == nil {
		return nil
	}
	switch n.Kind {
	case definition.List:
		list := make([]any, len(n.Items))
		for i, item := range n.Items {
			list[i] = plainValue(item)
		}
		return list
	case definition.Map:
		fields := make(map[string]any, len(n.Fields))
		for _, f := range n.Fields {
			fields[f.Key] = plainValue(f.Value)
		}
		return fields
	}
	return n.Value
}

func text(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

func (t *turn) fieldText(_ *Node, _ string, field *definition.Node) (string, error) {
	return text(plainValue(field)), nil
}

func (t *turn) condition(*Node, string, *definition.Node) (bool, []Value, error) {
	return false, nil, errors.New("conditions are not evaluated yet")
}

func (t *turn) when(n *Node, e *element) (bool, string, error) {
	for p := t.parent(n); p != nil; p = t.parent(p) {
		if p.Kind != StrategyNode && !p.Tally.aggregate().Positive() {
			return false, "an earlier " + string(n.Kind) + " did not succeed", nil
		}
	}
	return true, "", nil
}

func (t *turn) expand(*Node, *definition.Strategy) (plan, string, error) {
	return plan{}, "", errors.New("strategies are not expanded yet")
}

func (t *turn) renderStep(n *Node, e *element) (Step, error) {
	limit, err := t.timeout(n, e.step.Timeout)
	spec, _ := plainValue(e.step.Spec).(map[string]any)
	return Step{Node: n.Path, Attempt: n.Attempt, Identifier: n.Identifier, Name: n.Name, Type: n.Type, Spec: spec, Timeout: limit}, err
}

func (t *turn) opening(n *Node) (*Opening, error) {
	s := t.element(n).stage
	limit, err := t.timeout(n, s.Timeout)
	o := &Opening{Identifier: n.Identifier, Name: n.Name, Pipeline: t.m.pipeline.Identifier, Timeout: limit}
	if s.Infrastructure != nil {
		o.Infrastructure = &Infrastructure{Type: s.Infrastructure.Type, Spec: plainValue(s.Infrastructure.Spec)}
	}
	o.Platform, o.Runtime = plainValue(s.Platform), plainValue(s.Runtime)
	return o, err
}
