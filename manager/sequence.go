package manager

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
)

// The order of a stage is the init, the steps, and always the cleanup. handleEvent
// drives it: it handles the queue's events one at a time.

// handleEvent handles one event of the queue.
func (c *core) handleEvent(e *queue.Event) {
	switch e.Kind {
	case queue.Lost:
		c.perpetual.Observe(e.Account, e.Delegate)
		c.count(e.Account, func(s *accountStats) { s.DelegatesLost++ })
		c.publish(e.Account, api.Event{Type: delegateEvent, Delegate: e.Delegate, Status: api.Status(queue.Gone)})
		c.log(zerolog.WarnLevel, "a delegate is lost: it sends no heartbeats", logEntry{account: e.Account, delegate: e.Delegate})
		return
	case queue.Returned:
		c.publish(e.Account, api.Event{Type: delegateEvent, Delegate: e.Delegate, Status: api.Status(queue.Alive)})
		c.log(zerolog.InfoLevel, "a lost delegate has returned", logEntry{account: e.Account, delegate: e.Delegate})
		return
	}
	k := key{e.Account, e.Work}
	if e.Kind == queue.Forgotten {
		c.forgetStage(k)
		c.forgetTask(k)
		return
	}
	if e.Kind == queue.Requeued {
		c.count(e.Account, func(s *accountStats) { s.Requeued++ })
	}
	n := c.stages[k]
	if n == nil {
		c.handleTaskEvent(k, e)
		return
	}
	switch e.Kind {
	case queue.Acquired:
		c.partStarted(n, e)
	case queue.Requeued:
		n.Status, n.DelegateID = api.Queued, ""
		n.requeued(e.At)
		n.init.Status, n.init.StartedAt = api.Queued, time.Time{}
		c.publishStage(n)
		c.updateQueueLog(n)
	case queue.Expired:
		c.stopStage(n, api.Timeout, api.FailureTimeout, fmt.Sprintf("the stage ran longer than its time-out of %s", n.timeout.Duration()))
	case queue.LeaseEnded:
		c.log(zerolog.WarnLevel, "the lease of a held stage has ended", logEntry{account: n.account, stage: n.ID, delegate: n.DelegateID})
		c.stopStage(n, api.Failure, api.FailureLeaseEnded,
			fmt.Sprintf("the lease of the held stage ended: its holder gave no sign for %s", n.leaseTime()))
	case queue.Stranded:
		c.stranded(n, e)
	case queue.Ended:
		c.partEnded(n, e)
	}
}

// partStarted records that a delegate has acquired a part of the stage.
func (c *core) partStarted(n *run, e *queue.Event) {
	p := n.partOf(e.Task)
	if p == nil {
		return
	}
	p.Status, p.StartedAt = api.Running, e.At
	if p.kind == taskkind.Init {
		c.started(n.account, stageKind, &n.lifecycle, e.At)
		n.Status, n.DelegateID, n.variant = api.Running, e.Delegate, e.Variant
		c.publishStage(n)
		c.updateQueueLog(n)
	} else if n.DelegateID != e.Delegate && !n.Status.Ended() {
		n.DelegateID = e.Delegate
		c.publishStage(n)
		c.log(zerolog.WarnLevel, "another delegate of its group continues a stage", logEntry{account: n.account, stage: n.ID, delegate: e.Delegate})
	}
	c.publishStep(n, p)
}

// partOf returns the part of a stage that a task belongs to, or nil.
func (n *run) partOf(id string) *step {
	if n.current != nil && n.current.TaskID == id { // a stage may have thousands of steps
		return n.current
	}
	switch id {
	case n.init.TaskID:
		return &n.init
	case n.cleanup.TaskID:
		return &n.cleanup
	}
	if n.held != nil && n.held.sent[id] != nil {
		return n.held.sent[id]
	}
	for i := range n.steps {
		if n.steps[i].TaskID == id {
			return &n.steps[i]
		}
	}
	return nil
}

// partEnded records the end of a part and starts the next one.
func (c *core) partEnded(n *run, e *queue.Event) {
	p := n.partOf(e.Task)
	if p == nil {
		return
	}
	p.recordResult(e)
	c.publishStep(n, p)
	if p.kind == taskkind.Init {
		c.updateQueueLog(n)
	}
	switch {
	case n.Status.Ended():
		// This cleanup waited for its delegate's return. The stage has ended before.
	case e.Result.Outcome == queue.Abandoned && (n.held == nil || p.kind == taskkind.Cleanup):
		c.delegateLost(n, p)
	case p.kind == taskkind.Cleanup:
		c.finishStage(n)
	case p.kind == taskkind.Init && !e.Started:
		n.recordFailure(p)
		n.skipRemaining()
		n.cleanup.Status = api.Skipped // no delegate has created anything
		c.finishStage(n)
	case n.held != nil:
		c.heldPartEnded(n, p, e.Result.Outcome == queue.Abandoned)
	default:
		if p.Status != api.Success {
			n.recordFailure(p)
		}
		c.startNext(n)
	}
}

// recordResult stores the result of the part's task.
func (p *step) recordResult(e *queue.Event) {
	p.EndedAt = e.At
	p.Error = e.Result.Error
	p.Status = statusOf(e.Result.Outcome)
	f := parseAnswerData(e.Result.Data)
	f.declareSecrets(p.data.json())
	f.hideSecrets()
	p.FailureKind = f.failureKind(p.kind, &e.Result)
	p.ExitCode, p.OutputVars, p.Outputs, p.Artifact, p.Tests = f.exitCode, f.outputVars, f.outputs, f.artifact, f.tests
	if p.kind == taskkind.Init {
		p.Clone = within(f.clone, p.EndedAt.Sub(p.StartedAt))
	}
}

// within returns the time of a clone as far as it is within an init that took so long.
func within(c *api.CloneTime, length time.Duration) *api.CloneTime {
	most := max(length.Milliseconds(), 0)
	if c == nil || c.After < 0 || c.After > most || c.Took < 0 {
		return nil
	}
	return &api.CloneTime{After: c.After, Took: min(c.Took, most-c.After)}
}

// statusOf returns the status for an outcome.
func statusOf(o queue.Outcome) api.Status {
	switch o {
	case queue.Success:
		return api.Success
	case queue.TimedOut:
		return api.Timeout
	case queue.Aborted:
		return api.Aborted
	default:
		return api.Failure
	}
}

// recordFailure stores the first failure of a stage. It decides the stage's status.
func (n *run) recordFailure(p *step) {
	if n.failed != "" {
		return
	}
	n.failed = p.Status
	name := p.ID
	if p.kind == taskkind.Execute {
		name = fmt.Sprintf("step %q", p.ID)
	}
	n.FailureKind = cmp.Or(n.FailureKind, p.FailureKind)
	// Delegates often repeat the name of the step.
	n.Error = cmp.Or(n.Error, name+": "+strings.TrimPrefix(p.Error, name+": "))
}

// startNext sends the next part of the stage to its delegate.
func (c *core) startNext(n *run) {
	for n.next < len(n.steps) {
		p := &n.steps[n.next]
		n.next++
		switch {
		case p.Status.Ended(): // it was aborted before its turn
			n.recordFailure(p)
		case n.shouldRun(p):
			c.sendPart(n, p)
			return
		default:
			p.Status = api.Skipped
		}
	}
	if n.held != nil {
		c.settleHeld(n)
		return
	}
	c.sendPart(n, &n.cleanup)
}

// shouldRun reports whether a step runs, given the stage's progress.
func (n *run) shouldRun(p *step) bool {
	if n.stopping != "" || n.lost || n.init.Status != api.Success {
		return false
	}
	switch p.runOn {
	case runOnAlways:
		return true
	case runOnFailure:
		return n.failed != ""
	default:
		return n.failed == ""
	}
}

// sendPart adds a part to the queue, for the stage's delegate.
func (c *core) sendPart(n *run, p *step) {
	n.current = p
	err := c.queue.Append(n.account, n.ID, p.task(n, n.variant, c.at))
	if err == nil {
		return
	}
	// The queue does not know the stage, or its random task id is taken.
	p.Status, p.Error, p.FailureKind = api.Failure, err.Error(), api.FailureUnknown
	n.recordFailure(p)
	n.skipRemaining()
	c.finishStage(n)
}

// delegateLost ends a stage whose delegate is lost. The stage leaves a cleanup for
// another delegate of the group, or for the delegate's return.
func (c *core) delegateLost(n *run, p *step) {
	n.lost = true
	if p.kind != taskkind.Cleanup { // otherwise the steps have ended before
		n.recordFailure(p)
	}
	c.leaveCleanup(n, p.kind != taskkind.Cleanup)
}

// leaveCleanup ends a stage whose delegate is lost. First reports that the stage has sent
// no cleanup before.
func (c *core) leaveCleanup(n *run, first bool) {
	n.skipRemaining()
	again := n.cleanup
	again.StepState = api.StepState{ID: n.cleanup.ID, Status: api.Queued, TaskID: n.cleanup.TaskID + "-again"}
	if c.queue.AppendDetached(n.account, n.ID, again.task(n, n.variant, c.at)) == nil {
		n.cleanup = again
	} else if first {
		n.cleanup.Status, n.cleanup.Error = api.Skipped, "the delegate no longer exists"
	}
	c.finishStage(n)
}

// skipRemaining marks the steps that will not run as skipped.
func (n *run) skipRemaining() {
	for ; n.next < len(n.steps); n.next++ {
		if p := &n.steps[n.next]; !p.Status.Ended() {
			p.Status = api.Skipped
		}
	}
}

// finish ends a stage and frees its slot, or starts another attempt.
func (c *core) finishStage(n *run) {
	if c.retryStage(n) {
		return
	}
	n.current = nil
	c.occupy(n.account, workAmounts(n.size), -1)
	n.Status = cmp.Or(n.stopping, n.failed, api.Success)
	n.EndedAt = c.at
	c.addEnding(n)
	if n.held != nil {
		c.closeHeld(n, "it has ended")
		c.skipAppended(n)
	}
	for _, p := range n.parts {
		p.data = packed{} // it may be large
	}
	close(n.done)
	c.publishStage(n)
	c.log(zerolog.InfoLevel, "a stage has ended",
		logEntry{account: n.account, stage: n.ID, delegate: n.DelegateID, status: string(n.Status), trace: n.Trace})
	c.ended(n.account, stageKind, &n.lifecycle, n.Status, n.DelegateID, n.EndedAt)
	_ = c.queue.Release(n.account, n.ID) // all its tasks have ended or are detached
}

// stopStage ends a stage early: it aborts the running parts, after which the cleanup runs.
// A stage that runs its cleanup already has its status.
func (c *core) stopStage(n *run, status api.Status, kind api.FailureKind, reason string) {
	if n.stopping != "" || n.Status.Ended() || n.current == &n.cleanup {
		return
	}
	n.stopping, n.FailureKind, n.Error = status, kind, reason
	if n.held != nil {
		c.stopHeld(n, reason)
		return
	}
	_ = c.queue.Abort(n.account, n.current.TaskID, reason) // the queue has every current task
}
