package engine

import (
	"cmp"
	"fmt"
)

// startStrategy makes the children of a strategy and starts the first ones.
func (t *turn) startStrategy(n *Node) {
	e := t.element(n)
	if reason := t.leftOut(e); reason != "" {
		t.end(n, Skipped, reason)
		return
	}
	n.StartedAt = t.now
	plan, skip, err := t.expand(n, e.strategy)
	switch {
	case err != nil:
		t.fail(n, FailureConfiguration, "strategy: "+err.Error())
		return
	case skip != "":
		t.end(n, Skipped, skip)
		return
	}
	parent := t.parent(n)
	for i, it := range plan.iterations {
		id := e.id + it.postfix
		if t.m.elements[childPath(parent.Kind, t.element(parent).path, id)] != nil {
			t.fail(n, FailureConfiguration, fmt.Sprintf("strategy: the identifier %s of a child is also that of another %s", id, e.kind))
			return
		}
		child := t.create(n, e, n.Path+it.postfix, e.kind)
		child.Identifier, child.Name, child.Order = id, child.Name+it.postfix, i
		child.Index, child.Total, child.Postfix = i, len(plan.iterations), it.postfix
		child.Matrix, child.Repeat = it.matrix, it.repeat
		child.Reason = "waits for its turn in the strategy"
		n.Children = append(n.Children, child.Path)
	}
	n.Limit = plan.limit
	t.setStatus(n, Running)
	t.ready = append(t.ready, n)
}

// advanceStrategy starts children up to the limit, and ends the strategy after the last one.
func (t *turn) advanceStrategy(n *Node) {
	for n.Ending == "" && t.stopped(n) == "" && n.Next < len(n.Children) && (n.Limit == 0 || n.Active < n.Limit) {
		child := t.s.Nodes[n.Children[n.Next]]
		n.Next++
		n.Active++
		t.touch(n)
		t.consider(child)
	}
	if n.Active > 0 {
		return
	}
	status, reason := n.Ending, n.Why
	if status == "" {
		status = n.Tally.aggregate()
		if !status.Positive() && t.onFailure(n) == "ignore" {
			status = IgnoreFailed
		}
	}
	for ; n.Next < len(n.Children); n.Next++ {
		child := t.s.Nodes[n.Children[n.Next]]
		child.Status, child.EndedAt, child.Reason = Skipped, t.now, clip("the strategy has ended: "+cmp.Or(t.stopped(n), reason))
		t.touch(child)
	}
	t.end(n, status, reason)
}

// childEnded counts a child of a strategy, which may end the others.
func (t *turn) childEnded(n, child *Node) {
	if !child.Status.Positive() && n.Ending == "" && n.Stop == "" && t.onFailure(n) == "abort" {
		n.Stop = child.Identifier + " did not succeed"
		t.cancelBelow(n, Aborted, n.Stop, true)
	}
}

// plan is the expansion of a strategy.
type plan struct {
	iterations []iteration
	limit      int
}

// iteration is one child of a strategy.
type iteration struct {
	postfix string
	matrix  Values
	repeat  Values
}
