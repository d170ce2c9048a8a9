package engine

import (
	"strconv"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"pgregory.net/rapid"
)

// generator makes random pipelines for the engine and the model.
type generator struct {
	t    *rapid.T
	next int
	left int // how many steps are allowed
}

func (g *generator) chance(percent int) bool {
	return rapid.IntRange(0, 99).Draw(g.t, "chance") >= 100-percent
}

func (g *generator) id(prefix string) string {
	g.next++
	return prefix + strconv.Itoa(g.next)
}

func pick[T any](g *generator, values ...T) T { return rapid.SampledFrom(values).Draw(g.t, "pick") }

// common sets what all nodes may have.
func (g *generator) common(n *modelNode) {
	n.when = pick(g, "Success", "Success", "Success", "Failure", "All")
	if g.chance(10) {
		n.condition = pick(g, "true", "false")
	}
	if g.chance(20) {
		n.parallelism, n.limit = pick(g, 1, 2, 3), pick(g, 0, 1, 2)
	}
	if g.chance(40) {
		n.action = pick(g, "Ignore", "MarkAsSuccess", "MarkAsFailure", "StageRollback", "PipelineRollback", "Abort", "Retry", "Retry", "RetryStepGroup")
		n.errors = pick(g, "AllErrors", "Unknown", "PluginImageFailure")
		n.retries, n.interval = pick(g, 1, 2), g.chance(50)
	}
}

func (g *generator) pipeline() *modelNode {
	root := &modelNode{kind: PipelineNode, id: "p"}
	for range rapid.IntRange(1, 3).Draw(g.t, "stages") {
		var item []*modelNode
		for range pick(g, 1, 1, 2) {
			n := &modelNode{kind: StageNode, id: g.id("stage")}
			g.common(n)
			g.steps(n, 0)
			item = append(item, n)
		}
		root.items = append(root.items, item)
	}
	return root
}

// graph makes each stage its own item, with stages before it that it depends on.
func (g *generator) graph(root *modelNode) {
	var before []string
	var items [][]*modelNode
	for _, item := range root.items {
		for _, n := range item {
			for _, id := range before {
				if g.chance(50) {
					n.depends = append(n.depends, id)
				}
			}
			before = append(before, n.id)
			items = append(items, []*modelNode{n})
		}
	}
	root.items = items
}

func (g *generator) steps(c *modelNode, depth int) {
	for range rapid.IntRange(1, 3).Draw(g.t, "items") {
		var item []*modelNode
		for range pick(g, 1, 1, 1, 2, 3) {
			item = append(item, g.step(depth))
		}
		c.items = append(c.items, item)
	}
}

func (g *generator) step(depth int) *modelNode {
	if depth < 2 && g.left > 0 && g.chance(25) {
		n := &modelNode{kind: GroupNode, id: g.id("group")}
		g.common(n)
		n.timeout = g.chance(40)
		g.steps(n, depth+1)
		return n
	}
	g.left--
	n := &modelNode{kind: StepNode, id: g.id("step")}
	g.common(n)
	n.background = g.chance(10)
	return n
}

// define turns a random pipeline into a definition.
func define(root *modelNode, graph bool) *definition.Pipeline {
	p := &definition.Pipeline{Identifier: "p", Graph: graph}
	for _, item := range root.items {
		var stages []*definition.Stage
		for _, n := range item {
			s := &definition.Stage{Identifier: n.id, Type: "CI", When: whenOf(n), Strategy: strategyOf(n), FailureStrategies: failuresOf(n), DependsOn: n.depends}
			for _, below := range n.items {
				s.Steps = append(s.Steps, defineItem(below))
			}
			stages = append(stages, s)
		}
		p.Stages = append(p.Stages, definition.StageItem{Parallel: stages})
	}
	return p
}

func defineItem(item []*modelNode) definition.StepItem {
	var all []definition.StepItem
	for _, n := range item {
		if n.kind == StepNode {
			kind := "Run"
			if n.background {
				kind = typeBackground
			}
			all = append(all, definition.StepItem{Step: &definition.Step{
				Identifier: n.id, Type: kind, When: whenOf(n), Strategy: strategyOf(n), FailureStrategies: failuresOf(n),
			}})
			continue
		}
		group := &definition.Group{Identifier: n.id, When: whenOf(n), Strategy: strategyOf(n), FailureStrategies: failuresOf(n)}
		if n.timeout {
			group.Timeout = &definition.Node{Value: "1h"}
		}
		for _, below := range n.items {
			group.Steps = append(group.Steps, defineItem(below))
		}
		all = append(all, definition.StepItem{Group: group})
	}
	if len(all) == 1 {
		return all[0]
	}
	return definition.StepItem{Parallel: all}
}

func whenOf(n *modelNode) *definition.When {
	w := &definition.When{Status: n.when}
	if n.condition != "" {
		w.Condition = &definition.Node{Value: n.condition}
	}
	return w
}

func strategyOf(n *modelNode) *definition.Strategy {
	if n.parallelism == 0 {
		return nil
	}
	s := &definition.Strategy{Parallelism: &definition.Node{Value: int64(n.parallelism)}}
	if n.limit > 0 {
		s.MaxConcurrency = &definition.Node{Value: int64(n.limit)}
	}
	return s
}

func failuresOf(n *modelNode) []*definition.FailureStrategy {
	if n.action == "" {
		return nil
	}
	a := &definition.Action{Type: n.action, RetryCount: &definition.Node{Value: int64(n.retries)}}
	if n.interval {
		a.RetryIntervals = []*definition.Node{{Value: "10s"}}
	}
	return []*definition.FailureStrategy{{Errors: []string{n.errors}, Action: a}}
}
