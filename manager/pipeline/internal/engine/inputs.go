package engine

import (
	"fmt"
	"strings"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// asks collects the inputs of n that are asked for when its turn comes, and reports whether one
// has no value.
func (t *turn) asks(n *Node, e *element) bool {
	var fields []definition.Field
	switch n.Kind {
	case StepNode:
		fields = []definition.Field{{Key: "spec", Value: e.step.Spec}, {Key: "timeout", Value: e.step.Timeout}}
	case StageNode:
		fields = stageFields(e.stage)
	case StrategyNode:
		fields = strategyFields(e.strategy)
	default:
		return false
	}
	missing := false
	for _, field := range fields {
		walk(field.Key, field.Value, func(path, text string) {
			if !asked(text) || n.input(path) != nil {
				return
			}
			n.Inputs = append(n.Inputs, Input{Field: path, Text: text})
			missing = true
		})
	}
	return missing
}

// stageFields are the fields of a stage that are rendered when it opens.
func stageFields(s *definition.Stage) []definition.Field {
	fields := []definition.Field{
		{Key: "timeout", Value: s.Timeout}, {Key: "delegateSelectors", Value: s.Selectors}, {Key: "spec.cloneCodebase", Value: s.Clone},
		{Key: "spec.platform", Value: s.Platform}, {Key: "spec.runtime", Value: s.Runtime}, {Key: "spec.caching", Value: s.Caching},
		{Key: "spec.sharedPaths", Value: s.SharedPaths},
	}
	if s.Infrastructure != nil {
		fields = append(fields, definition.Field{Key: "spec.infrastructure.spec", Value: s.Infrastructure.Spec})
	}
	for _, v := range s.Variables {
		fields = append(fields, definition.Field{Key: "variables." + v.Name, Value: v.Value})
	}
	return fields
}

// strategyFields are the fields of a strategy that decide its children.
func strategyFields(s *definition.Strategy) []definition.Field {
	fields := []definition.Field{{Key: "strategy.parallelism", Value: s.Parallelism}, {Key: "strategy.maxConcurrency", Value: s.MaxConcurrency}}
	if s.Whole != nil {
		fields = append(fields, definition.Field{Key: wholeField(s), Value: s.Whole})
	}
	if m := s.Matrix; m != nil {
		for _, axis := range m.Axes {
			fields = append(fields, definition.Field{Key: "strategy.matrix." + axis.Key, Value: axis.Value})
		}
	}
	if r := s.Repeat; r != nil {
		fields = append(fields, definition.Field{Key: "strategy.repeat.times", Value: r.Times}, definition.Field{Key: "strategy.repeat.items", Value: r.Items})
	}
	return fields
}

// wholeField is the field of a strategy or a matrix that a person gives as a whole.
func wholeField(s *definition.Strategy) string {
	if s.WholeMatrix {
		return "strategy.matrix"
	}
	return "strategy"
}

// given returns the strategy with the part that a person gave.
func given(n *Node, s *definition.Strategy) (*definition.Strategy, error) {
	if s.Whole == nil {
		return s, nil
	}
	in := n.input(wholeField(s))
	if in == nil || !in.Given {
		return nil, fmt.Errorf("%s: the input has no value", at(s.Position))
	}
	whole, err := definition.ParseStrategy(in.Value, s.WholeMatrix)
	if err != nil {
		return nil, fmt.Errorf("the given %s: %w", wholeField(s), err)
	}
	if whole.MaxConcurrency == nil {
		whole.MaxConcurrency = s.MaxConcurrency
	}
	if whole.When == nil {
		whole.When = s.When
	}
	if whole.OnFailure == "" {
		whole.OnFailure = s.OnFailure
	}
	return whole, nil
}

// onFailure returns the effect of a failed child of a strategy on the others.
func (t *turn) onFailure(n *Node) string {
	s, err := given(n, t.element(n).strategy)
	if err != nil {
		return ""
	}
	return s.OnFailure
}

// walk calls visit for each text below a value.
func walk(path string, n *definition.Node, visit func(path, text string)) {
	if n == nil {
		return
	}
	switch n.Kind {
	case definition.List:
		for i, item := range n.Items {
			walk(fmt.Sprintf("%s[%d]", path, i), item, visit)
		}
	case definition.Map:
		for _, field := range n.Fields {
			walk(path+"."+field.Key, field.Value, visit)
		}
	default:
		if text, ok := n.Value.(string); ok {
			visit(path, text)
		}
	}
}

// asked reports whether a text is a runtime input that is given while the run is running.
func asked(text string) bool {
	if !strings.HasPrefix(strings.TrimSpace(text), "<+input>") {
		return false
	}
	in, ok, err := definition.ParseInput(text)
	return ok && err == nil && in.Execution
}

func (n *Node) input(field string) *Input {
	for i := range n.Inputs {
		if n.Inputs[i].Field == field {
			return &n.Inputs[i]
		}
	}
	return nil
}

// ask makes a node wait for its inputs.
func (t *turn) ask(n *Node) {
	n.Reason = "waits for inputs"
	t.setStatus(n, InputWaiting)
	e := t.element(n)
	var field *definition.Node
	switch e.kind {
	case StepNode:
		field = e.step.Timeout
	case StageNode:
		field = e.stage.Timeout
	}
	if limit, err := t.timeout(n, field); err == nil && limit > 0 {
		n.Due = t.now.Add(limit)
		t.setTimer(n, InputTimer, n.Due)
	}
}

// takeInputs takes the values of a person and starts the node.
func (t *turn) takeInputs(n *Node, e *Event) error {
	for field, value := range e.Answer.Inputs {
		in := n.input(field)
		if in == nil {
			return refuse("%s does not ask for the input %s", n.Path, field)
		}
		if len(value) > maxOutput {
			return refuse("the input %s of %s has %d bytes: at most %d are possible", field, n.Path, len(value), maxOutput)
		}
	}
	values := make([]string, len(n.Inputs))
	for i := range n.Inputs {
		field := n.Inputs[i].Field
		in, _, err := definition.ParseInput(n.Inputs[i].Text)
		if err != nil {
			return refuse("the input %s of %s: %v", field, n.Path, err)
		}
		value, ok := e.Answer.Inputs[field]
		switch {
		case ok:
			if err := in.Check(value); err != nil {
				return refuse("the input %s of %s: %v", field, n.Path, err)
			}
		case in.Default == nil:
			return refuse("%s needs a value for the input %s", n.Path, field)
		default:
			value = *in.Default
		}
		if s := t.element(n).strategy; n.Kind == StrategyNode && s.Whole != nil && field == wholeField(s) {
			if _, err := definition.ParseStrategy(value, s.WholeMatrix); err != nil {
				return refuse("the input %s of %s: %v", field, n.Path, err)
			}
		}
		values[i] = value
	}
	for i := range n.Inputs {
		n.Inputs[i].Value, n.Inputs[i].Given = values[i], true
	}
	n.Answered = clipName(e.By)
	t.touch(n)
	t.run(n)
	return nil
}

// proceedWithDefaults starts a node whose inputs were not given in time.
func (t *turn) proceedWithDefaults(n *Node) {
	if n.FailureKind != FailureInputTimeout {
		t.end(n, failed(n.FailureKind), n.Reason)
		return
	}
	for i := range n.Inputs {
		in, _, err := definition.ParseInput(n.Inputs[i].Text)
		if err != nil || in.Default == nil {
			t.end(n, failed(n.FailureKind), n.Reason+": "+n.Inputs[i].Field+" has no default")
			return
		}
		n.Inputs[i].Value, n.Inputs[i].Given = *in.Default, true
	}
	n.FailureKind = ""
	t.run(n)
}
