package engine

import (
	"slices"
	"strings"
)

// retryRun runs an ended run again from a stage. Stages before it keep their results, and so do
// stages beside it that succeeded.
func (t *turn) retryRun(n *Node, e *Event) error {
	root := t.s.Root()
	if e.Attempt != 0 && e.Attempt != root.Attempt {
		return nil
	}
	if !root.Status.Ended() {
		if n.Kind == PipelineNode || n.Kind == StageNode || t.element(n).kind == StageNode {
			return refuse("the run has not ended: it is %s", root.Status)
		}
		return t.retryFrom(n, e)
	}
	from := n
	if e.Node == "" {
		from = t.firstFailed()
	}
	for p := t.parent(from); p != nil && p.Kind != PipelineNode; p = t.parent(p) {
		from = p
	}
	first := t.m.elements[from.Source]
	switch {
	case e.Node == "" && from == root:
		return refuse("no stage of the run has failed: name the one to begin with")
	case first == nil || first.kind != StageNode || n.Kind == StepNode || n.Kind == GroupNode:
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

// firstFailed returns the first stage that did not succeed, or the root.
func (t *turn) firstFailed() *Node {
	for _, e := range t.m.root.all() {
		if n := t.s.Nodes[e.path]; n != nil && n.Status.Ended() && !n.Status.Positive() {
			return n
		}
	}
	return t.s.Root()
}

// retryFrom runs a stage that a failed step holds open again from a step or group. Steps beside it in a parallel block
// that ended well, or that still run, are left as they are.
func (t *turn) retryFrom(n *Node, e *Event) error {
	stage, c := t.stageOf(n), t.parent(n)
	held := stage.Opened && stage.Ending == "" && !stage.Finishing && stage.Waiting[InterventionWaiting] > 0
	items := t.element(c).items
	first := slices.IndexFunc(items, func(item []*element) bool { return slices.Contains(item, t.element(n)) })
	switch {
	case !held:
		return refuse("the stage %s is not held: none of its steps waits for an intervention", stage.Identifier)
	case c.Ending != "" || t.cancelled(c):
		return refuse("%s is ending: nothing more starts in it", c.Path)
	case t.stopped(c) != "":
		return refuse("nothing more starts in %s: %s", c.Path, t.stopped(c))
	case c.Kind == StrategyNode:
		return refuse("%s is one of several children of %s: retry that", n.Path, c.Path)
	case c.Status.Ended() || c.Status == NotStarted || c.Status == Queued:
		return refuse("%s does not run: retry from it, or from what is around it", c.Path)
	case n.Status == NotStarted:
		return refuse("%s has not run yet", n.Path)
	}
	var again []*Node
	for i, item := range items[:c.Next] {
		for _, e := range item {
			other := t.s.Nodes[childPath(c.Kind, c.Path, e.id)]
			switch {
			case i < first || other == nil || other.Status == NotStarted:
			case other == n || i > first || !other.Status.Positive() && !other.Background && !t.busy(other):
				if t.busy(other) {
					return refuse("%s still runs: wait for its end, or abort it", other.Path)
				}
				again = append(again, other)
			}
		}
	}
	for _, other := range again {
		if !other.Status.Ended() && !other.Background {
			c.Active--
		}
		t.discard(other)
	}
	for p := c; p.Kind != PipelineNode; p = t.parent(p) {
		if p.Tally.aggregate().Positive() {
			p.Why = ""
		}
		t.touch(p)
	}
	stage.Reason = "retried from " + n.Identifier
	if e.By != "" {
		stage.Reason += " by " + clipName(e.By)
	}
	c.Next = first + 1
	for _, e := range items[first] {
		if other := t.s.Nodes[childPath(c.Kind, c.Path, e.id)]; other != nil && other.Status == NotStarted {
			c.Active++
			t.begin(c, e)
		}
	}
	return nil
}

// busy reports whether a step at or below n runs. A background step that has started does not count.
func (t *turn) busy(n *Node) bool {
	return n.Sent && !n.Background || slices.ContainsFunc(t.children(n), t.busy)
}

// discard makes a node of a running container ready for another attempt, and subtracts it from the counts of its
// ancestors.
func (t *turn) discard(n *Node) {
	if n.Kind == GroupNode {
		for status, count := range n.Tally {
			t.count(n, status, -count)
		}
	}
	own := n.Kind != GroupNode || n.StartedAt.IsZero() || n.FailureKind != "" // as in end
	if n.Status.Ended() && own && !n.Background {
		t.count(n, n.Status, -1)
	}
	t.forgetNode(n)
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
