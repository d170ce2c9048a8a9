package engine

import "strings"

// retryRun runs an ended run again from a stage. Stages before it keep their results, and so do
// stages beside it that succeeded.
func (t *turn) retryRun(n *Node, e *Event) error {
	root := t.s.Root()
	if e.Attempt != 0 && e.Attempt != root.Attempt {
		return nil
	}
	if !root.Status.Ended() {
		return refuse("the run has not ended: it is %s", root.Status)
	}
	from := n
	for p := t.parent(from); p != nil && p.Kind != PipelineNode; p = t.parent(p) {
		from = p
	}
	first := t.m.elements[from.Source]
	if from == root || first == nil || first.kind != StageNode || n.Kind == StepNode || n.Kind == GroupNode {
		return refuse("%s is not a stage: a run can be retried from a stage", n.Path)
	}
	repeat, next := t.repeated(first)
	for _, stage := range repeat {
		t.forgetTree(t.s.Nodes[stage.path])
	}
	t.restartRun(root, next)
	if e.By != "" {
		root.Reason = "retried by " + clipName(e.By) + " from the stage " + first.id
	}
	return nil
}

// repeated returns the stages to repeat for a retry from first, and the place of its item.
func (t *turn) repeated(first *element) ([]*element, int) {
	var repeat []*element
	if t.m.pipeline.Graph {
		seen := map[*element]bool{}
		t.collect(first, seen)
		for _, e := range t.m.root.all() {
			n := t.s.Nodes[e.path]
			if seen[e] || n != nil && (!n.Status.Positive() || n.Blocked) {
				repeat = append(repeat, e)
			}
		}
		return repeat, 0
	}
	next := len(t.m.root.items)
	for i, item := range t.m.root.items {
		for _, e := range item {
			if e == first {
				next = i
			}
		}
		for _, e := range item {
			n := t.s.Nodes[e.path]
			if i > next || i == next && (e == first || n != nil && !n.Status.Positive()) {
				repeat = append(repeat, e)
			}
		}
	}
	return repeat, next
}

// collect adds a stage and all that depend on it.
func (t *turn) collect(e *element, seen map[*element]bool) {
	open := []*element{e}
	for len(open) > 0 {
		e, open = open[0], open[1:]
		if !seen[e] {
			seen[e] = true
			open = append(open, t.m.dependents[e]...)
		}
	}
}

// forgetTree makes a stage and everything below it ready for another attempt.
func (t *turn) forgetTree(n *Node) {
	if n == nil {
		return
	}
	t.forgetChildren(n)
	if n.Status != NotStarted {
		t.forget(n)
	}
}

// restartRun begins another attempt of the run.
func (t *turn) restartRun(root *Node, next int) {
	t.forget(root)
	root.Attempt++
	root.Next = next
	for _, child := range t.children(root) {
		t.recount(root, child)
	}
	t.run(root)
	if t.m.pipeline.Graph {
		for _, child := range t.children(root) {
			if child.Status.Ended() {
				t.released = append(t.released, t.element(child))
			}
		}
	}
}

// recount counts a stage whose result is kept.
func (t *turn) recount(root, stage *Node) {
	if !stage.Status.Ended() {
		return
	}
	root.Tally.add(stage.Status, 1)
	if !stage.Status.Positive() && root.Why == "" {
		root.Why = clip(strings.Join([]string{string(stage.Kind), stage.Identifier + ":", stage.Reason}, " "))
	}
	root.RolledBack = root.RolledBack || stage.RolledBack
	if stage.Kind == StrategyNode {
		for _, child := range t.children(stage) {
			root.RolledBack = root.RolledBack || child.RolledBack
		}
	}
}
