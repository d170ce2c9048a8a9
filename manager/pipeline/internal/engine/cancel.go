package engine

// cancel ends a node before its time. A stage or a step that the manager has is CANCELLING until
// the manager confirms.
func (t *turn) cancel(n *Node, ending Status, why string) {
	t.cancelNode(n, ending, clip(why), true)
}

// cancelNode sends commands for steps unless their stage is aborted as a whole.
func (t *turn) cancelNode(n *Node, ending Status, why string, commands bool) {
	if n.Status.Ended() || n.Status == NotStarted || n.Ending != "" || n.Finishing {
		return
	}
	n.Ending, n.Why = ending, why
	switch {
	case n.Kind == StepNode && n.Sent:
		t.setStatus(n, Cancelling)
		n.Reason = why
		if commands {
			t.abortStep(n, why)
		}
	case n.Kind == StepNode, n.Kind == StageNode && !n.Open, n.Status == Queued && n.Kind != StageNode, n.Waits != "":
		n.FailureKind = FailureAborted
		t.end(n, ending, why)
	default:
		t.setStatus(n, Cancelling)
		n.Reason = why
		if n.Kind == StageNode {
			commands = false
			t.command(Command{Kind: AbortStage, Node: n.Path, Attempt: n.Attempt, Reason: why})
		}
		t.cancelBelow(n, ending, why, commands)
		t.ready = append(t.ready, n)
	}
}

func (t *turn) cancelBelow(n *Node, ending Status, why string, commands bool) {
	for _, child := range t.children(n) {
		if n.Kind == StrategyNode && child.Order >= n.Next {
			break
		}
		t.cancelNode(child, ending, why, commands)
	}
}

func (t *turn) abortStep(n *Node, why string) {
	stage := t.stageOf(n)
	t.command(Command{
		Kind: AbortStep, Node: n.Path, Attempt: n.Attempt, Stage: stage.Path, StageAttempt: stage.Attempt, Reason: why,
	})
}

// cancelled reports whether a node above n is being ended, so that n cannot be retried.
func (t *turn) cancelled(n *Node) bool { return t.ending(n) != nil }

// ending returns the nearest node above n that is being ended, or nil.
func (t *turn) ending(n *Node) *Node {
	for p := t.parent(n); p != nil; p = t.parent(p) {
		if p.Ending != "" {
			return p
		}
	}
	return nil
}
