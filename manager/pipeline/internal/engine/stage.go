package engine

import (
	"cmp"
	"time"
)

// openStage asks the manager to open a stage.
func (t *turn) openStage(n *Node) {
	opening, err := t.opening(n)
	if err != nil {
		t.fail(n, FailureConfiguration, err.Error())
		return
	}
	n.Open, n.Number = true, t.s.number()
	n.StartedAt = t.now
	t.setStatus(n, Queued)
	n.Reason = waitsForDelegate
	t.command(Command{Kind: OpenStage, Node: n.Path, Attempt: n.Attempt, Open: opening})
	if opening.Timeout > 0 {
		t.setTimer(n, TimeoutTimer, t.now.Add(opening.Timeout))
	}
}

// waitsForDelegate is the reason of a stage that the manager has in its queue.
const waitsForDelegate = "waits for a delegate"

// noteWait notes why a stage or a step that was sent to the manager waits before it.
func (t *turn) noteWait(n *Node, reason string) {
	open := n.Kind == StageNode && n.Status == Queued && n.Open && !n.Opened
	if !open && (n.Kind != StepNode || n.Status != Running || !n.Sent) {
		return
	}
	switch {
	case reason != "":
		reason = clip("waits for the manager: " + reason)
	case open:
		reason = waitsForDelegate
	}
	if n.Reason != reason {
		n.Reason = reason
		t.touch(n)
	}
}

func (t *turn) setTimer(n *Node, kind TimerKind, due time.Time) {
	t.command(Command{Kind: SetTimer, Node: n.Path, Attempt: n.Attempt, Timer: kind, Due: due})
}

// stageOpened starts the first steps of a stage.
func (t *turn) stageOpened(n *Node) {
	if n.Kind != StageNode || !n.Open || n.Opened || n.Ending != "" {
		return
	}
	n.Opened = true
	n.Reason = ""
	t.setStatus(n, Running)
	t.ready = append(t.ready, n)
}

// closeStage ends a stage whose steps have ended: at the manager first.
func (t *turn) closeStage(n *Node) {
	switch {
	case !n.Open:
		t.completeStage(n)
	case n.Ending == "" && !n.Finishing:
		n.Finishing = true
		n.Reason = "cleans up"
		t.touch(n)
		t.command(Command{Kind: FinishStage, Node: n.Path, Attempt: n.Attempt})
	}
}

// stageEnded takes the end of a stage at the manager. If the engine has not asked for it, the
// steps that run fail with the stage.
func (t *turn) stageEnded(n *Node, e *Event) {
	if n.Kind != StageNode || !n.Open {
		return
	}
	n.Open = false
	t.touch(n)
	if !n.Finishing && n.Ending == "" {
		kind := cmp.Or(known(e.Result.Failure), FailureUnknown)
		why := "the manager ended the stage before its steps had ended"
		if !n.Opened {
			why = "the stage could not be opened"
		}
		if e.Result.Message != "" {
			why += ": " + e.Result.Message
		}
		n.Ending, n.FailureKind, n.Why = failed(kind), kind, clip(why)
	}
	for i := range e.Steps {
		r := &e.Steps[i]
		if step := t.s.Nodes[r.Node]; step != nil && step.Attempt == r.Attempt && !step.Status.Ended() && t.stageOf(step) == n {
			t.stepEnded(step, &r.Result)
		}
	}
	if n.Ending != "" {
		t.endBelow(n, n.Ending, cmp.Or(n.FailureKind, kindOf(n.Ending)), n.Why)
	}
	t.ready = append(t.ready, n)
}

// endBelow ends everything below n that has not ended.
func (t *turn) endBelow(n *Node, status Status, kind FailureKind, why string) {
	for _, child := range t.children(n) {
		if child.Status.Ended() || child.Status == NotStarted || child.Background {
			continue
		}
		if n.Kind == StrategyNode && child.Status == Queued && child.StartedAt.IsZero() && child.Order >= n.Next {
			continue
		}
		if child.Kind == StepNode || child.Status == Queued || child.Waits != "" {
			child.FailureKind = kind
			t.end(child, status, why)
			continue
		}
		child.Ending, child.Why = status, why
		t.endBelow(child, status, kind, why)
		if child.Active == 0 {
			t.ready = append(t.ready, child)
		}
	}
}

// completeStage ends a stage that the manager has ended or never had.
func (t *turn) completeStage(n *Node) {
	t.endBackgrounds(n)
	switch n.Ending {
	case "":
		status := n.Tally.aggregate()
		reason := n.Why
		if status == Succeeded {
			reason = n.Stop
		}
		t.end(n, status, reason)
	case Failed, Expired:
		t.fail(n, cmp.Or(n.FailureKind, kindOf(n.Ending)), n.Why)
	default:
		t.end(n, n.Ending, n.Why)
	}
}

// endBackgrounds ends the background steps of a stage, which stop with it.
func (t *turn) endBackgrounds(n *Node) {
	status, reason := Succeeded, "stopped with the stage"
	if n.Ending != "" {
		status, reason = n.Ending, n.Why
	}
	for _, path := range n.Backgrounds {
		if step := t.s.Nodes[path]; step.Background && !step.Status.Ended() {
			t.end(step, status, reason)
		}
	}
}

// kindOf is the kind of the failure of a node that the engine has ended.
func kindOf(ending Status) FailureKind {
	if ending == Expired {
		return FailureTimeout
	}
	return FailureAborted
}
