package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// person carries out an abort, an answer or a retry.
func (t *turn) person(e *Event) error {
	n := t.s.Nodes[cmp.Or(e.Node, rootPath)]
	if n == nil {
		return refuse("the run has no node %s", e.Node)
	}
	if t.element(n) == nil {
		return fmt.Errorf("the definition has no %s: it is not the one of the run", n.Source)
	}
	if e.Kind == RetryRun {
		return t.retryRun(n, e)
	}
	late := e.Attempt != 0 && e.Attempt != n.Attempt || n.Status.Ended() || n.Status == NotStarted
	if e.Kind == Abort {
		if late {
			return nil
		}
		return t.abort(n, e)
	}
	if late {
		return refuse("%s does not wait for an answer: it is %s", n.Path, n.Status)
	}
	if e.Answer == nil {
		return refuse("the answer to %s is empty", e.Node)
	}
	return t.answer(n, e)
}

func (t *turn) abort(n *Node, e *Event) error {
	why := "aborted"
	if e.By != "" {
		why += " by " + clipName(e.By)
	}
	if e.Reason != "" {
		why += ": " + e.Reason
	}
	t.cancel(n, Aborted, why)
	return nil
}

// answer passes an answer to a node that waits for it.
func (t *turn) answer(n *Node, e *Event) error {
	if n.Status == Running && n.Kind == StepNode && e.Answer.Action == actionMarkAsFailure {
		return t.markFailed(n, e)
	}
	if n.Waits == "" {
		return refuse("%s does not wait for an answer: it is %s", n.Path, n.Status)
	}
	switch n.Waits {
	case ApprovalWaiting:
		n.Answered = clipName(e.By)
		t.approve(n, e.Answer)
	case InputWaiting:
		return t.takeInputs(n, e)
	default:
		if !slices.Contains(interventions[:], e.Answer.Action) {
			return refuse("answer to %s: unknown action %q: use one of %s", n.Path, clip(e.Answer.Action), strings.Join(interventions[:], ", "))
		}
		n.Answered = clipName(e.By)
		t.resolve(n, e.Answer.Action)
	}
	return nil
}

// markFailed ends a running step, which then fails with the error UserMarkedFailure.
func (t *turn) markFailed(n *Node, e *Event) error {
	if !n.Sent || t.element(n).step.Type == typeBackground {
		return refuse("%s cannot be marked as failed: abort it", n.Path)
	}
	why := "marked as failed"
	if e.By != "" {
		why += " by " + clipName(e.By)
	}
	if e.Answer.Comment != "" {
		why += ": " + e.Answer.Comment
	}
	n.FailureKind = FailureMarked
	t.cancel(n, Failed, why)
	return nil
}

func (t *turn) approve(n *Node, a *Answer) {
	if a.Approve {
		t.end(n, Succeeded, clip(cmp.Or(a.Comment, "approved")))
		return
	}
	t.fail(n, FailureRejected, cmp.Or(a.Comment, "rejected"))
}

// interventions are the actions that answer a manual intervention.
var interventions = [...]string{
	actionRetry, actionIgnore, actionMarkAsSuccess, actionMarkAsFailure, actionAbort, actionStageRollback, actionPipelineRollback,
	actionRetryStepGroup,
}

// intervene makes a failed node wait for the decision of a person.
func (t *turn) intervene(n *Node, action *definition.Action) {
	limit, err := t.timeout(n, action.Timeout)
	if err != nil {
		t.end(n, failed(n.FailureKind), n.Reason+"; no intervention: "+err.Error())
		return
	}
	t.waitForPerson(n, limit)
}

func (t *turn) waitForPerson(n *Node, limit time.Duration) {
	t.setStatus(n, InterventionWaiting)
	if limit > 0 {
		n.Due = t.now.Add(limit)
		t.setTimer(n, AnswerTimer, n.Due)
	}
}

// interventionTimeout ends an intervention for which no answer came, as its strategy says.
func (t *turn) interventionTimeout(n *Node) {
	action, _ := t.strategyFor(n, errorsOf(n.FailureKind))
	if action != nil && action.Type == actionRetry {
		action = action.OnRetryFailure
	}
	then := &definition.Action{Type: actionMarkAsFailure}
	if action != nil && action.OnTimeout != nil {
		then = action.OnTimeout
	}
	n.Values = append(n.Values, Value{Name: "intervention", Value: "the time for an answer is over: " + then.Type})
	n.Due = time.Time{}
	t.act(n, then, false)
}

// resolve ends an intervention with the action of a person.
func (t *turn) resolve(n *Node, action string) {
	n.Values = append(n.Values, Value{Name: "intervention", Value: "answered with " + action})
	n.Due = time.Time{}
	switch action {
	case actionRetry:
		n.Retries-- // a retry by a person does not use up those of the failure strategy
		t.retry(n, 0)
	case actionRetryStepGroup:
		t.act(n, &definition.Action{Type: action}, false)
	default:
		t.settle(n, action)
	}
}

// timer takes a timer that is due.
func (t *turn) timer(n *Node, kind TimerKind) {
	switch kind {
	case RetryTimer:
		if n.Status == Queued && !n.Due.IsZero() {
			n.Due = time.Time{}
			t.run(n)
		}
	case InputTimer:
		if n.Waits == InputWaiting {
			t.fail(n, FailureInputTimeout, "the time for inputs is over")
		}
	case AnswerTimer:
		if n.Waits == InterventionWaiting {
			t.interventionTimeout(n)
		}
	case TimeoutTimer:
		t.timeoutFired(n)
	}
}

// timeoutFired ends a node whose time-out is over. A node that waits for its retry, or that a
// person looks at, is not running.
func (t *turn) timeoutFired(n *Node) {
	switch {
	case n.Kind == StepNode && n.Waits == ApprovalWaiting:
		t.fail(n, FailureTimeout, timeIsOver+": no approval came")
	case n.Kind == StepNode && (!n.Sent || n.Background):
	case n.Waits != "":
	default:
		t.cancel(n, Expired, timeIsOver)
	}
}
