package engine

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// errorsOf are the errors of failure strategies that a kind of failure matches. AllErrors matches
// every kind except an abort.
func errorsOf(kind FailureKind) []string {
	switch kind {
	case FailureTimeout:
		return []string{"Timeout"}
	case FailureImage:
		return []string{"PluginImageFailure", "InfrastructureFailure"}
	case FailureConnectivity:
		return []string{"Connectivity", "RetryableTransientFailure"}
	case FailureOutOfMemory:
		return []string{"ResourceLimitsFailure"}
	case FailureDelegateLost:
		return []string{"DelegateRestart", "InfrastructureFailure", "RetryableTransientFailure"}
	case FailureRefused:
		return []string{"DelegateProvisioning", "InfrastructureFailure"}
	case FailureInfrastructure:
		return []string{"InfrastructureFailure"}
	case FailureConfiguration:
		return []string{"ConfigurationFailure"}
	case FailureInputTimeout:
		return []string{"InputTimeoutError"}
	case FailureRejected:
		return []string{"ApprovalRejection"}
	case FailureMarked:
		return []string{"UserMarkedFailure"}
	case FailureExitCode, FailureUnknown:
		return []string{"Unknown"}
	}
	return nil // an abort
}

// known returns a kind of failure from outside, or FailureUnknown for one that does not exist.
func known(kind FailureKind) FailureKind {
	if kind == "" || kind == FailureAborted || len(errorsOf(kind)) > 0 {
		return kind
	}
	return FailureUnknown
}

// The actions of failure strategies.
const (
	actionIgnore              = "Ignore"
	actionRetry               = "Retry"
	actionMarkAsSuccess       = "MarkAsSuccess"
	actionMarkAsFailure       = "MarkAsFailure"
	actionAbort               = "Abort"
	actionStageRollback       = "StageRollback"
	actionStepGroupRollback   = "StepGroupRollback"
	actionPipelineRollback    = "PipelineRollback"
	actionRetryStepGroup      = "RetryStepGroup"
	actionProceedWithDefaults = "ProceedWithDefaultValues"
	actionManualIntervention  = "ManualIntervention"
)

// fail applies the failure strategies to a node that failed. The node has not ended yet.
func (t *turn) fail(n *Node, kind FailureKind, message string) {
	n.FailureKind = kind
	n.Reason = clip(message)
	t.touch(n)
	if t.cancelled(n) {
		t.end(n, failed(kind), message)
		return
	}
	action, level := t.strategyFor(n, errorsOf(kind))
	if action == nil && n.Kind == StepNode && t.element(n).step.Type != typeBackground && t.s.Run.HoldFailed > 0 {
		t.waitForPerson(n, t.s.Run.HoldFailed)
		return
	}
	if action == nil {
		t.end(n, failed(kind), message)
		return
	}
	n.Values = []Value{{Name: "failureStrategy", Value: action.Type + " of " + level}, {Name: "failure", Value: string(kind)}}
	t.act(n, action, true)
}

// strategyFor returns the first action for one of the errors: of the node, of the groups around
// it, of its stage. On one level the first that matches is used.
func (t *turn) strategyFor(n *Node, errors []string) (*definition.Action, string) {
	if e := t.element(n); len(errors) == 0 || e.kind == StepNode && e.step.Type == typeBackground {
		return nil, ""
	}
	for ; n != nil && n.Kind != PipelineNode; n = t.parent(n) {
		if p := t.parent(n); p != nil && p.Kind == StrategyNode {
			continue // the strategy node has the same definition
		}
		for _, s := range t.element(n).failureStrategies {
			if s.Action == nil {
				continue
			}
			for _, e := range s.Errors {
				if e == "AllErrors" || slices.Contains(errors, e) {
					return s.Action, n.Source
				}
			}
		}
		if n.Kind == StageNode {
			break
		}
	}
	return nil, ""
}

// act carries out an action for a failed node. An intervention is possible once.
func (t *turn) act(n *Node, action *definition.Action, intervention bool) {
	switch action.Type {
	case actionRetry:
		t.retryAction(n, action, intervention)
	case actionRetryStepGroup:
		t.retryGroup(n, action, intervention)
	case actionProceedWithDefaults:
		t.proceedWithDefaults(n)
	case actionManualIntervention:
		if intervention {
			t.intervene(n, action)
			return
		}
		t.end(n, failed(n.FailureKind), n.Reason)
	default:
		t.settle(n, action.Type)
	}
}

// settle carries out an action that ends the node.
func (t *turn) settle(n *Node, action string) {
	reason := n.Reason
	switch action {
	case actionIgnore:
		t.end(n, IgnoreFailed, "ignored: "+reason)
	case actionMarkAsSuccess:
		t.end(n, Succeeded, "marked as success: "+reason)
	case actionAbort:
		t.end(n, Aborted, reason)
		t.cancel(t.s.Root(), Aborted, "the failure strategy of "+n.Identifier+" aborts the run: "+reason)
	case actionStageRollback, actionStepGroupRollback:
		t.rollBack(n, action)
		t.end(n, failed(n.FailureKind), reason)
	case actionPipelineRollback:
		t.rollBack(n, action)
		t.s.Root().Stop = "a failure strategy rolled the run back"
		t.touch(t.s.Root())
		t.end(n, failed(n.FailureKind), reason)
	default: // MarkAsFailure, and unknown ones, which the reader refuses
		t.end(n, failed(n.FailureKind), reason)
	}
}

// rollBack starts nothing more in the stage of n, or in its group for StepGroupRollback. There is
// nothing to undo in a CI stage. The failure does not make OnPipelineFailure true.
func (t *turn) rollBack(n *Node, action string) {
	why := "the failure strategy of " + n.Identifier + " rolled back (" + action + ")"
	p := n
	for p != nil && p.Kind != StageNode && (p == n || p.Kind != GroupNode || action != actionStepGroupRollback) {
		p = t.parent(p)
	}
	if p == nil {
		return
	}
	p.Stop = why
	t.touch(p)
	p.RolledBack = p.Kind == StageNode
}

// retryAction runs a node again after its interval, unless the retries are used up.
func (t *turn) retryAction(n *Node, action *definition.Action, intervention bool) {
	count, delay, err := t.retryPlan(n, action)
	if err != nil {
		t.end(n, failed(n.FailureKind), n.Reason+"; no retry: "+err.Error())
		return
	}
	if n.Retries >= count {
		if action.OnRetryFailure != nil && action.OnRetryFailure.Type != actionRetry {
			t.act(n, action.OnRetryFailure, intervention)
			return
		}
		t.end(n, failed(n.FailureKind), fmt.Sprintf("%s; failed after %d retries", n.Reason, n.Retries))
		return
	}
	if why := t.refusedByCondition(n, action); why != "" {
		t.end(n, failed(n.FailureKind), n.Reason+"; no retry: "+why)
		return
	}
	t.retry(n, delay)
}

// refusedByCondition returns why the condition of an action does not permit another attempt, or an empty text.
func (t *turn) refusedByCondition(n *Node, action *definition.Action) string {
	if action.Condition == nil {
		return ""
	}
	ok, values, err := t.condition(n, "failureStrategies.condition", action.Condition)
	switch {
	case err != nil:
		n.Values = append(n.Values, values...)
		return "the condition of the retry: " + err.Error()
	case !ok:
		n.Values = append(n.Values, values...)
		return "the condition of the retry is false"
	}
	return ""
}

// retryPlan returns how often a node may be retried and how long it waits now. The last interval
// repeats. Without intervals there is no wait.
func (t *turn) retryPlan(n *Node, action *definition.Action) (int, time.Duration, error) {
	count := 1
	if action.RetryCount != nil {
		value, err := t.fieldText(n, "failureStrategies.retryCount", action.RetryCount)
		if err != nil {
			return 0, 0, err
		}
		if count, err = strconv.Atoi(value); err != nil || count < 0 || count > maxRetries {
			return 0, 0, fmt.Errorf("retryCount %q is not a number from 0 to %d", value, maxRetries)
		}
	}
	if len(action.RetryIntervals) == 0 {
		return count, 0, nil
	}
	interval := action.RetryIntervals[min(n.Retries, len(action.RetryIntervals)-1)]
	delay, err := t.interval(n, interval)
	return count, delay, err
}

// retry begins another attempt of a node, after a delay.
func (t *turn) retry(n *Node, delay time.Duration) {
	reason := n.Reason
	t.again(n)
	if delay <= 0 {
		t.run(n)
		return
	}
	t.pause(n, t.now.Add(delay))
	n.Reason = clip(fmt.Sprintf("retry %d waits for %s after: %s", n.Retries, delay, reason))
}

// pause makes a queued node wait for a time.
func (t *turn) pause(n *Node, due time.Time) {
	t.setStatus(n, Queued)
	n.Due = due
	n.Reason = "runs again at " + due.UTC().Format(time.RFC3339)
	t.setTimer(n, RetryTimer, due)
}

// retryGroup runs the group around a failed node again, after its other steps have ended.
func (t *turn) retryGroup(n *Node, action *definition.Action, intervention bool) {
	group := n
	for group != nil && group.Kind != GroupNode {
		group = t.parent(group)
	}
	reason := n.Reason
	if group == nil || group == n {
		t.end(n, failed(n.FailureKind), reason+"; no retry: the step is not in a group")
		return
	}
	count, delay, err := t.retryPlan(group, action)
	if then := action.OnRetryFailure; err == nil && group.Retries >= count && then != nil && then.Type != actionRetryStepGroup {
		t.act(n, then, intervention)
		return
	}
	why := ""
	switch {
	case err != nil:
		why = "no retry: " + err.Error()
	case group.Retries >= count:
		why = fmt.Sprintf("the group failed after %d retries", group.Retries)
	default:
		if why = t.refusedByCondition(n, action); why != "" {
			why = "no retry: " + why
		}
	}
	if why != "" {
		t.end(n, failed(n.FailureKind), reason+"; "+why)
		return
	}
	group.Again, group.Due = true, t.now.Add(delay)
	group.Stop = "the group runs again"
	t.touch(group)
	t.end(n, failed(n.FailureKind), reason)
}
