package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
)

// environment returns the surroundings of an evaluation for a field of n.
func (t *turn) environment(n *Node, field string, secrets expression.SecretMode) *expression.Environment {
	return &expression.Environment{
		Scope: &scope{t, n}, Time: t.s.Run.StartedAt, Secrets: secrets,
		Record: func(e expression.Evaluated) { t.record(n, field, e) },
	}
}

// record keeps an evaluated expression with its node. A child that a strategy only supposes, to evaluate its
// nodeName, is not a node of the run, so the strategy keeps the expression.
func (t *turn) record(n *Node, field string, e expression.Evaluated) {
	if t.s.Nodes[n.Path] != n {
		if n = t.s.Nodes[n.Parent]; n == nil {
			return
		}
	}
	kept := Evaluated{Field: field, Text: clip(e.Text), Source: clip(e.Source), Time: t.now}
	if e.Err != nil {
		kept.Error = clip(e.Err.Error())
	} else {
		kept.Value = clip(text(e.Value))
	}
	size := kept.size()
	for i := range n.Evaluated {
		size += n.Evaluated[i].size()
	}
	if len(n.Evaluated) < maxEvaluated && size <= maxRecord {
		n.Evaluated = append(n.Evaluated, kept)
		t.touch(n)
	}
}

func (e *Evaluated) size() int {
	return len(e.Field) + len(e.Text) + len(e.Value) + len(e.Source) + len(e.Error)
}

// render renders a value of the definition. A secret becomes a reference.
func (t *turn) render(n *Node, path string, value *definition.Node) (any, error) {
	return t.renderAs(n, path, value, expression.Late)
}

func (t *turn) renderAs(n *Node, path string, value *definition.Node, secrets expression.SecretMode) (any, error) {
	if value == nil {
		return nil, nil
	}
	switch value.Kind {
	case definition.List:
		list := make([]any, len(value.Items))
		for i, item := range value.Items {
			var err error
			if list[i], err = t.renderAs(n, path+"["+strconv.Itoa(i)+"]", item, secrets); err != nil {
				return nil, err
			}
		}
		return list, nil
	case definition.Map:
		fields := make(map[string]any, len(value.Fields))
		for _, f := range value.Fields {
			rendered, err := t.renderAs(n, path+"."+f.Key, f.Value, secrets)
			if err != nil {
				return nil, err
			}
			fields[f.Key] = rendered
		}
		return fields, nil
	}
	text, ok := value.Value.(string)
	if !ok {
		return value.Value, nil
	}
	rendered, err := t.renderText(n, path, text, secrets)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", at(value.Position), path, err)
	}
	return rendered, nil
}

func (t *turn) renderText(n *Node, path, text string, secrets expression.SecretMode) (any, error) {
	env := t.environment(n, path, secrets)
	if asked(text) {
		in := n.input(path)
		if in == nil || !in.Given {
			return nil, fmt.Errorf("the input has no value")
		}
		// The value is inserted as data: the delegate must not resolve a reference in it.
		text, env.Scope, env.Record = "<+answer>", answerScope(in.Value), nil
	}
	if !strings.Contains(text, "<+") {
		return text, nil
	}
	template, err := expression.Parse(text)
	if err != nil {
		return nil, err
	}
	return template.Render(env)
}

// answerScope knows the answer of a person.
type answerScope string

func (a answerScope) Lookup(name string) (any, bool) { return string(a), name == "answer" }
func (a answerScope) Names() []string                { return nil }

// fieldText renders a field that must be text, without secrets.
func (t *turn) fieldText(n *Node, path string, field *definition.Node) (string, error) {
	value, err := t.renderAs(n, path, field, expression.Refuse)
	return strings.TrimSpace(text(value)), err
}

// evaluate evaluates a field as one expression. Lists and maps of the definition are rendered.
func (t *turn) evaluate(n *Node, path string, field *definition.Node) (any, error) {
	source, ok := field.Value.(string)
	if field.Kind != definition.Scalar || !ok || asked(source) || !strings.Contains(source, "<+") {
		return t.renderAs(n, path, field, expression.Refuse)
	}
	c, err := expression.ParseCondition(strings.TrimSpace(source))
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", at(field.Position), path, err)
	}
	value, err := c.Evaluate(t.environment(n, path, expression.Refuse))
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", at(field.Position), path, err)
	}
	return value, nil
}

// condition evaluates a condition. It returns the values that decided it.
func (t *turn) condition(n *Node, path string, field *definition.Node) (bool, []Value, error) {
	if decided, ok := field.Value.(bool); ok {
		return decided, nil, nil
	}
	c, err := expression.ParseCondition(strings.TrimSpace(text(field.Value)))
	if err != nil {
		return false, nil, fmt.Errorf("%s: %w", at(field.Position), err)
	}
	env := t.environment(n, path, expression.Refuse)
	var values []Value
	env.Record = func(e expression.Evaluated) {
		t.record(n, path, e)
		if len(values) < maxEvaluated {
			values = append(values, Value{Name: clip(e.Text), Value: clip(shown(e))})
		}
	}
	ok, err := c.Decide(env)
	if err != nil {
		err = fmt.Errorf("%s: %w", at(field.Position), err)
	}
	return ok, values, err
}

func shown(e expression.Evaluated) string {
	if e.Err != nil {
		return "error: " + e.Err.Error()
	}
	if e.Value == nil {
		return "null"
	}
	return text(e.Value)
}

// when reports whether the turn of a node leads to its start, or else why not.
func (t *turn) when(n *Node, e *element) (bool, string, error) {
	w := e.when
	status := "Success"
	if w != nil && w.Status != "" {
		status = w.Status
	}
	word := "OnStage" + status
	if e.kind == StageNode {
		word = "OnPipeline" + status
	}
	if status != "All" && !t.onStatus(n, e, word) {
		where, now := "stage", t.currentStatus(n)
		if e.kind == StageNode {
			where, now = "pipeline", t.s.Root().Tally.aggregate()
		}
		n.Values = []Value{{Name: "<+" + where + ".currentStatus>", Value: string(now)}}
		return false, fmt.Sprintf("runs only on %s of the %s", strings.ToLower(status), where), nil
	}
	if w == nil || w.Condition == nil {
		return true, "", nil
	}
	ok, values, err := t.condition(n, "when.condition", w.Condition)
	n.Values = values
	if err != nil || ok {
		return ok, "", err
	}
	return false, clip("the condition is false: " + strings.TrimSpace(text(w.Condition.Value))), nil
}

// onStatus decides the words OnStageSuccess, OnStageFailure, OnPipelineSuccess and
// OnPipelineFailure for a node.
func (t *turn) onStatus(n *Node, e *element, word string) bool {
	root := t.s.Root()
	switch word {
	case "OnStageSuccess":
		return t.currentStatus(n).Positive()
	case "OnStageFailure":
		return t.currentStatus(n).Broken()
	case "OnPipelineSuccess":
		if t.m.pipeline.Graph && e != nil && e.kind == StageNode {
			return true // the stages that it depends on have succeeded; the others do not count
		}
		return root.Tally.aggregate().Positive()
	}
	return root.Tally.aggregate().Broken() && !root.RolledBack
}

// currentStatus is the status of the stage as n sees it: of the nodes that have ended, without
// the other children of a strategy that n belongs to.
func (t *turn) currentStatus(n *Node) Status {
	var all tally
	from := t.parent(n)
	if n.Kind == StageNode {
		from = n
	}
	for p := from; p != nil && p.Kind != PipelineNode; p = t.parent(p) {
		if p.Kind == StrategyNode {
			continue
		}
		for status, count := range p.Tally {
			all.add(status, count)
		}
		if p.Kind == StageNode {
			break
		}
	}
	return all.aggregate()
}

// liveStatus is the status of a node as far as it has come, with the children of strategies that still run.
func (t *turn) liveStatus(n *Node) Status {
	if n.Status.Ended() || n.Kind == StepNode {
		return n.Status
	}
	var all tally
	t.countLive(n, &all)
	return all.aggregate()
}

func (t *turn) countLive(n *Node, all *tally) {
	for status, count := range n.Tally {
		all.add(status, count)
	}
	for _, child := range t.children(n) {
		if child.Kind != StepNode && !child.Status.Ended() { // an ended one is counted above
			t.countLive(child, all)
		}
	}
}

// text writes a value as text. Lists and maps are JSON.
func text(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	case expression.Text:
		return value.Value
	case bool:
		return strconv.FormatBool(value)
	case int64:
		return strconv.FormatInt(value, 10)
	case float64:
		switch size := math.Abs(value); {
		case value == math.Trunc(value) && size < 1e15:
			return strconv.FormatFloat(value, 'f', 1, 64)
		case size >= 1e-15 && size < 1e15: // as it is written in a pipeline
			return strconv.FormatFloat(value, 'f', -1, 64)
		}
		return strconv.FormatFloat(value, 'g', -1, 64)
	case []any, map[string]any:
		data, err := json.Marshal(typed(value))
		if err != nil {
			return fmt.Sprintf("a value that cannot be shown: %v", err)
		}
		return string(data)
	case expression.Object:
		return "an object"
	}
	return fmt.Sprint(value)
}
