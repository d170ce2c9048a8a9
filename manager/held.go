package manager

import (
	"fmt"
	"time"

	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
)

// The order of a held stage. Its init and the steps of its submission run one after the
// other, as in every stage. Appended steps run beside them: they are sent when the init
// has succeeded, or when they are appended after that. The cleanup is sent when no part
// is in the queue any more, and the stage
//
//   - was finished,
//   - is being stopped: it was aborted, or its time-out or its lease has ended,
//   - or has an init that failed.
//
// A lost delegate ends the stage with a cleanup that waits, as always.

// held is the part of a run that only a held stage has.
type held struct {
	ids      stageIDs
	lease    time.Duration
	closed   string // the reason why the stage takes no more steps; empty while it is open
	appended []*step
	byID     map[string]*step // all steps, of the submission too
	sent     map[string]*step // appended steps that are in the queue, by their tasks
}

// step returns the step with an id, or nil.
func (n *run) step(id string) *step {
	if n.held != nil {
		return n.held.byID[id]
	}
	for i := range n.steps {
		if n.steps[i].ID == id {
			return &n.steps[i]
		}
	}
	return nil
}

// stepCount returns the number of steps, with the appended ones.
func (n *run) stepCount() int {
	if n.held == nil {
		return len(n.steps)
	}
	return len(n.steps) + len(n.held.appended)
}

// isOpen reports whether the stage takes further steps.
func (n *run) isOpen() bool { return n.held != nil && n.held.closed == "" }

// notOpen returns the error for a stage that takes no steps.
func (n *run) notOpen() error {
	why := "it was submitted without hold"
	if n.held != nil {
		why = n.held.closed
	}
	return fmt.Errorf("%w: stage %q: %s", ErrNotOpen, n.ID, why)
}

// indexSteps makes the index of the steps of a held stage.
func (n *run) indexSteps() {
	if n.held == nil {
		return
	}
	for i := range n.steps {
		n.held.byID[n.steps[i].ID] = &n.steps[i]
	}
	for _, p := range n.held.appended {
		n.held.byID[p.ID] = p
	}
}

// appendSteps executes an appendCommand. Existed reports that the stage had all steps.
func (c *core) appendSteps(account string, a *appendCommand) (existed bool, err error) {
	n := c.stages[key{account, a.ID}]
	switch {
	case n == nil:
		return false, fmt.Errorf("stage %q: %w", a.ID, ErrNotFound)
	case n.held == nil:
		return false, n.notOpen()
	}
	var added []*appendedStep
	for i := range a.Steps {
		s := &a.Steps[i]
		switch old := n.held.byID[s.State.ID]; {
		case old == nil:
			added = append(added, s)
		case old.digest != s.Part.Digest:
			return true, fmt.Errorf("%w: stage %q has another step %q", ErrConflict, n.ID, s.State.ID)
		}
	}
	if len(added) > 0 && !n.isOpen() {
		return false, n.notOpen()
	}
	if total := n.stepCount() + len(added); total > maxSteps {
		return false, fmt.Errorf("%w: steps: the stage would have %d steps; it may have %d", ErrInvalid, total, maxSteps)
	}
	if n.isOpen() {
		_ = c.queue.Renew(n.account, n.ID) // an open stage has a lease
	}
	for _, s := range added {
		c.addStep(n, s)
	}
	return len(added) == 0, nil
}

// addStep adds a step to an open stage and sends it if the init has succeeded.
func (c *core) addStep(n *run, s *appendedStep) {
	p := s.step()
	n.held.appended = append(n.held.appended, p)
	n.held.byID[p.ID] = p
	n.size += s.Size
	c.occupy(n.account, amounts{budgetBytes: s.Size}, 1)
	_ = c.queue.Enlarge(n.account, n.ID, p.keptSize()) // an open stage has not ended
	c.count(n.account, func(s *accountStats) { s.Appended++ })
	c.publishStep(n, p)
	if n.init.Status == api.Success {
		c.sendAppended(n, p)
	}
}

// sendAppended adds an appended step to the queue, unless it was aborted before.
func (c *core) sendAppended(n *run, p *step) {
	switch p.Status {
	case api.Queued:
	case api.Aborted:
		n.recordFailure(p)
		return
	default:
		return
	}
	n.held.sent[p.TaskID] = p
	if err := c.queue.Append(n.account, n.ID, p.task(n, n.variant, c.at)); err != nil { // its random task id is taken
		delete(n.held.sent, p.TaskID)
		p.Status, p.Error, p.FailureKind = api.Failure, err.Error(), api.FailureUnknown
		n.recordFailure(p)
		c.publishStep(n, p)
	}
}

// heldPartEnded continues a held stage after the end of its init or of a step.
func (c *core) heldPartEnded(n *run, p *step, lost bool) {
	delete(n.held.sent, p.TaskID)
	inOrder := p == n.current
	if inOrder {
		n.current = nil
	}
	if p.Status != api.Success {
		n.recordFailure(p)
	}
	switch {
	case lost:
		c.loseHeld(n)
		return
	case p.kind == taskkind.Init && p.Status == api.Success:
		for _, a := range n.held.appended {
			c.sendAppended(n, a)
		}
	case p.kind == taskkind.Init:
		c.closeHeld(n, "its init failed")
		c.skipAppended(n)
	}
	if inOrder {
		c.startNext(n)
	} else {
		c.settleHeld(n)
	}
}

// settleHeld sends the cleanup of a held stage if nothing else is left to do.
func (c *core) settleHeld(n *run) {
	switch {
	case n.current != nil || len(n.held.sent) > 0 || n.isOpen():
	case n.lost:
		c.leaveCleanup(n, true)
	default:
		c.sendPart(n, &n.cleanup)
	}
}

// finishHeld executes the command that closes a stage.
func (c *core) finishHeld(account, id string) error {
	n := c.stages[key{account, id}]
	switch {
	case n == nil:
		return fmt.Errorf("stage %q: %w", id, ErrNotFound)
	case n.held == nil:
		return n.notOpen()
	case n.isOpen():
		c.closeHeld(n, "it was finished")
		c.settleHeld(n)
	}
	return nil
}

// renewHeld executes the command that renews a lease.
func (c *core) renewHeld(account, id string) error {
	n := c.stages[key{account, id}]
	switch {
	case n == nil:
		return fmt.Errorf("stage %q: %w", id, ErrNotFound)
	case !n.isOpen():
		return n.notOpen()
	}
	return c.queue.Renew(account, id)
}

// closeHeld closes an open stage and ends its lease.
func (c *core) closeHeld(n *run, why string) {
	if n.isOpen() {
		n.held.closed = why
		_ = c.queue.EndLease(n.account, n.ID) // the queue has every stage that has not ended
		c.opened(n.account, -1)
	}
}

// stopHeld aborts all parts of a held stage that are in the queue. The cleanup follows
// them.
func (c *core) stopHeld(n *run, why string) {
	c.closeHeld(n, why)
	c.skipAppended(n)
	if n.current != nil {
		_ = c.queue.Abort(n.account, n.current.TaskID, why) // the queue has every current task
	}
	for _, p := range n.held.appended {
		if n.held.sent[p.TaskID] != nil {
			_ = c.queue.Abort(n.account, p.TaskID, why)
		}
	}
	c.settleHeld(n)
}

// loseHeld ends a held stage whose delegate is lost. Tasks that another delegate of the
// group has are aborted first.
func (c *core) loseHeld(n *run) {
	n.lost = true
	c.stopHeld(n, "its delegate is lost")
}

// stranded ends a held stage that had no part in the queue when its delegate was lost.
func (c *core) stranded(n *run, e *queue.Event) {
	if n.held == nil || n.Status.Ended() || n.current != nil || len(n.held.sent) > 0 {
		return
	}
	if n.failed == "" {
		n.failed, n.Error, n.FailureKind = api.Failure, e.Result.Error, api.FailureDelegateLost
	}
	c.loseHeld(n)
}

// skipAppended marks the appended steps that will not run as skipped.
func (c *core) skipAppended(n *run) {
	for _, p := range n.held.appended {
		if p.Status == api.Queued && n.held.sent[p.TaskID] == nil {
			p.Status = api.Skipped
			c.publishStep(n, p)
		}
	}
}

// opened changes the number of open stages of an account.
func (c *core) opened(account string, change int) { c.open[account] += change }

// abortStepCommand aborts a step of a stage.
type abortStepCommand struct {
	ID   string `json:"id"`
	Step string `json:"step"`
}

// abortStep executes an abortStepCommand.
func (c *core) abortStep(account string, a *abortStepCommand) error {
	const why = "the step was aborted"
	n := c.stages[key{account, a.ID}]
	if n == nil {
		return fmt.Errorf("stage %q: %w", a.ID, ErrNotFound)
	}
	p := n.step(a.Step)
	switch {
	case p == nil:
		return fmt.Errorf("step %q of stage %q: %w", a.Step, a.ID, ErrNotFound)
	case p.Status.Ended():
		return nil
	case p == n.current || n.held != nil && n.held.sent[p.TaskID] != nil:
		return c.queue.Abort(account, p.TaskID, why)
	}
	p.Status, p.Error, p.FailureKind, p.EndedAt = api.Aborted, why, api.FailureAborted, c.at
	c.publishStep(n, p)
	return nil
}
