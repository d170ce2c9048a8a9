package definition

import "fmt"

// checkExecutionInputs reports runtime inputs with executionInput() in places where a run does
// not wait for a value. A run waits before it opens a stage and before it starts a step.
func (r *reader) checkExecutionInputs(root *Node, p *Pipeline) {
	if !r.inputs {
		return
	}
	permitted := map[*Node]bool{}
	for _, s := range p.All() {
		permitStrategy(s.Strategy, permitted)
		places := []*Node{s.Timeout, s.Selectors, s.Clone, s.Platform, s.Runtime, s.SharedPaths}
		if s.Infrastructure != nil {
			places = append(places, s.Infrastructure.Spec)
		}
		for _, v := range s.Variables {
			places = append(places, v.Value)
		}
		for _, place := range places {
			permit(place, permitted)
		}
		permitSteps(s.Steps, permitted)
	}
	walk(root, nil, func(n *Node, at *path) {
		if !isInput(n) || permitted[n] {
			return
		}
		if in, _, err := ParseInput(n.Text()); err == nil && in.Execution {
			r.error(n.Position, "bad-input", at, fmt.Sprintf("a run does not wait for a value of %s", at),
				"use executionInput() in the spec and timeout of steps, in the values of strategies and in the variables of stages, or remove it to ask at the start")
		}
	})
}

func permit(n *Node, permitted map[*Node]bool) {
	if n == nil {
		return
	}
	permitted[n] = true
	for _, item := range n.Items {
		permit(item, permitted)
	}
	for _, field := range n.Fields {
		permit(field.Value, permitted)
	}
}

// permitStrategy permits inputs for the values that decide the children, and for the whole strategy.
func permitStrategy(s *Strategy, permitted map[*Node]bool) {
	if s == nil {
		return
	}
	permit(s.Whole, permitted)
	permit(s.Parallelism, permitted)
	permit(s.MaxConcurrency, permitted)
	if s.Matrix != nil {
		for _, axis := range s.Matrix.Axes {
			permit(axis.Value, permitted)
		}
	}
	if s.Repeat != nil {
		permit(s.Repeat.Times, permitted)
		permit(s.Repeat.Items, permitted)
	}
}

func permitSteps(items []StepItem, permitted map[*Node]bool) {
	for _, item := range items {
		switch {
		case item.Step != nil:
			permitStrategy(item.Step.Strategy, permitted)
			permit(item.Step.Spec, permitted)
			permit(item.Step.Timeout, permitted)
		case item.Group != nil:
			permitStrategy(item.Group.Strategy, permitted)
			permitSteps(item.Group.Steps, permitted)
		default:
			permitSteps(item.Parallel, permitted)
		}
	}
}
