package engine

import (
	"slices"
	"time"
)

// run starts a node whose conditions are met, or starts it again.
func (t *turn) run(n *Node) {
	n.Reason, n.Values, n.Due = "", nil, time.Time{}
	switch n.Kind {
	case StageNode:
		t.openStage(n)
	case StepNode:
		t.runStep(n)
	case StrategyNode:
		t.startStrategy(n)
	default:
		n.StartedAt = t.now
		t.setStatus(n, Running)
		if n.Kind == PipelineNode {
			t.startPipeline(n)
		} else {
			t.startGroup(n)
		}
		t.ready = append(t.ready, n)
	}
}

// startGroup sets the time-out of a group.
func (t *turn) startGroup(n *Node) {
	limit, err := t.timeout(n, t.element(n).group.Timeout)
	switch {
	case err != nil:
		n.Ending, n.Why, n.FailureKind = Failed, clip(err.Error()), FailureConfiguration
	case limit > 0:
		t.setTimer(n, TimeoutTimer, t.now.Add(limit))
	}
}

// startPipeline sets the time-out of the run and starts the first stages of a graph.
func (t *turn) startPipeline(root *Node) {
	limit, err := t.timeout(root, t.m.pipeline.Timeout)
	if err != nil {
		root.Ending, root.Why, root.FailureKind = Failed, err.Error(), FailureConfiguration
		return
	}
	if limit > 0 {
		t.command(Command{Kind: SetTimer, Node: root.Path, Attempt: root.Attempt, Timer: TimeoutTimer, Due: t.now.Add(limit)})
	}
	if !t.m.pipeline.Graph {
		return
	}
	for _, e := range t.m.root.all() {
		if len(e.depends) == 0 && t.waits(e) {
			root.Active++
			t.begin(root, e)
		}
	}
}

// waits reports whether the stage of a graph has not been started in this attempt of the run.
func (t *turn) waits(e *element) bool {
	n := t.s.Nodes[e.path]
	return n == nil || n.Status == NotStarted
}

// begin creates and starts the node of an element. The caller has counted it as active.
func (t *turn) begin(parent *Node, e *element) {
	path := childPath(parent.Kind, parent.Path, e.id)
	if e.strategy != nil {
		n := t.create(parent, e, path, StrategyNode)
		if t.leftOut(e) == "" && t.asks(n, e) {
			t.ask(n)
			return
		}
		t.run(n)
		return
	}
	t.consider(t.create(parent, e, path, e.kind))
}

// consider runs a node if its conditions are met, and skips it otherwise.
func (t *turn) consider(n *Node) {
	e := t.element(n)
	if reason := t.leftOut(e); reason != "" {
		t.end(n, Skipped, reason)
		return
	}
	ok, reason, err := t.when(n, e)
	switch {
	case err != nil:
		t.fail(n, FailureConfiguration, "error in evaluating the when condition: "+err.Error())
	case !ok:
		t.end(n, Skipped, reason)
	case t.asks(n, e):
		t.ask(n)
	default:
		t.run(n)
	}
}

// leftOut returns why a stage does not run at all, or "".
func (t *turn) leftOut(e *element) string {
	if e.kind != StageNode {
		return ""
	}
	if e.stage.Skip != "" {
		return e.stage.Skip
	}
	if selected := t.s.Run.Stages; len(selected) > 0 && !slices.Contains(selected, e.id) {
		return "the run was started without this stage"
	}
	return ""
}

// advance starts the next item of a container, or ends the container.
func (t *turn) advance(c *Node) {
	if c.Status.Ended() || c.Status == NotStarted || c.Status == Queued && c.Kind != StageNode {
		return
	}
	if c.Kind == StrategyNode {
		t.advanceStrategy(c)
		return
	}
	if c.Active > 0 || c.Kind == StageNode && !c.Finishing && c.Ending == "" && (!c.Open || !c.Opened) {
		return
	}
	items := t.element(c).items
	switch {
	case c.Ending != "":
		t.closeContainer(c)
	case c.Again && t.stopped(t.parent(c)) == "":
		t.restartGroup(c)
	case t.stopped(c) == "" && c.Next < len(items) && (c.Kind != PipelineNode || !t.m.pipeline.Graph):
		item := items[c.Next]
		c.Next++
		t.beginItem(c, item)
	default:
		t.closeContainer(c)
	}
}

// beginItem starts the elements of an item, all at the same time. After a retry of the run, only
// those that will run again.
func (t *turn) beginItem(c *Node, item []*element) {
	t.touch(c)
	var start []*element
	for _, e := range item {
		n := t.s.Nodes[childPath(c.Kind, c.Path, e.id)]
		if n == nil || n.Status == NotStarted {
			start = append(start, e)
		}
	}
	c.Active = len(start)
	for _, e := range start {
		t.begin(c, e)
	}
	if len(start) == 0 {
		t.ready = append(t.ready, c)
	}
}

// stopped returns why a container starts no more children, or "".
func (t *turn) stopped(c *Node) string {
	for {
		if c.Stop != "" {
			return c.Stop
		}
		if c.Kind == StageNode || c.Kind == PipelineNode {
			return ""
		}
		p := t.parent(c)
		if p == nil {
			return ""
		}
		c = p
	}
}

// closeContainer ends a container whose children have ended.
func (t *turn) closeContainer(c *Node) {
	if c.Kind == StageNode {
		t.closeStage(c)
		return
	}
	status := c.Ending
	if status == "" {
		status = c.Tally.aggregate()
	}
	reason := c.Why
	if status == Succeeded {
		reason = t.stopped(c)
	}
	t.end(c, status, reason)
}

// restartGroup starts a group again after all its steps have ended.
func (t *turn) restartGroup(c *Node) {
	for status, n := range c.Tally {
		t.count(c, status, -n)
	}
	delay := c.Due
	t.again(c)
	if delay.After(t.now) {
		t.pause(c, delay)
		return
	}
	t.run(c)
}

// again begins another attempt of a node that has not ended.
func (t *turn) again(n *Node) {
	t.forgetChildren(n)
	retries, inputs, created := n.Retries, n.Inputs, n.CreatedAt
	t.forget(n)
	n.Attempt++
	n.Status, n.Retries, n.Inputs, n.CreatedAt = Queued, retries+1, inputs, created
}

// forgetChildren makes the nodes below n ready for another attempt of n.
func (t *turn) forgetChildren(n *Node) {
	for _, child := range t.children(n) {
		t.forgetNode(child)
	}
}

// forgetNode makes a node, and the nodes below it, ready for another attempt.
func (t *turn) forgetNode(n *Node) {
	t.forgetChildren(n)
	if n.Status == NotStarted {
		return
	}
	if n.Sent {
		t.abortStep(n, "the step runs again")
	}
	if n.Kind == StepNode && n.Status.Broken() {
		stage := t.stageOf(n)
		stage.Failures = slices.DeleteFunc(stage.Failures, func(id string) bool { return id == n.Identifier })
		t.touch(stage)
	}
	t.forget(n)
}

// Children returns the nodes below n that exist, in the order of the definition.
func (m *Machine) Children(s *State, n *Node) []*Node {
	return m.turn(s, n.CreatedAt).children(n)
}

func (t *turn) children(n *Node) []*Node {
	var children []*Node
	if n.Kind == StrategyNode {
		for _, path := range n.Children {
			if child := t.s.Nodes[path]; child != nil {
				children = append(children, child)
			}
		}
		return children
	}
	e := t.element(n)
	if e == nil {
		return nil
	}
	for _, item := range e.items {
		for _, below := range item {
			if child := t.s.Nodes[childPath(n.Kind, n.Path, below.id)]; child != nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// release starts the stages of a graph that waited for a stage.
func (t *turn) release(e *element) {
	root := t.s.Root()
	if root.Status.Ended() || root.Ending != "" || root.Stop != "" {
		return
	}
	for _, next := range t.m.dependents[e] {
		if !t.waits(next) {
			continue
		}
		blocked, ready := "", true
		for _, on := range next.depends {
			n := t.s.Nodes[on.path]
			if n == nil || !n.Status.Ended() {
				ready = false
				break
			}
			if !n.Status.Positive() || n.Blocked {
				blocked = on.id
			}
		}
		if !ready {
			continue
		}
		root.Active++
		t.touch(root)
		if blocked == "" {
			t.begin(root, next)
			continue
		}
		n := t.create(root, next, next.path, StageNode)
		n.Blocked = true
		n.Values = []Value{{Name: blocked + ".status", Value: string(t.s.Nodes[t.m.root.byID[blocked].path].Status)}}
		t.end(n, Skipped, "depends on the stage "+blocked+", which did not succeed")
	}
}
