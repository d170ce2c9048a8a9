package engine

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// The types of steps that the engine itself knows. All others go to the delegate.
const (
	typeApproval   = "HarnessApproval"
	typeBackground = "Background"
)

// timeIsOver is the reason of a node whose time-out has ended it.
const timeIsOver = "the time-out is over"

// answerGrace is the time after the time-out of a step for its delegate, which ends the step itself,
// to say so. Then the engine aborts the step.
const answerGrace = 5 * time.Second

// runStep starts an attempt of a step.
func (t *turn) runStep(n *Node) {
	e := t.element(n)
	n.StartedAt = t.now
	step, err := t.renderStep(n, e)
	if err != nil {
		t.fail(n, FailureConfiguration, err.Error())
		return
	}
	limit := step.Timeout
	if e.step.Type != typeApproval {
		limit += answerGrace
	}
	if step.Timeout > 0 {
		t.setTimer(n, TimeoutTimer, t.now.Add(limit))
	}
	switch e.step.Type {
	case typeApproval:
		n.Reason = clip(text(step.Spec["approvalMessage"]))
		t.setStatus(n, ApprovalWaiting)
	default:
		t.setStatus(n, Running)
		n.Sent, n.Number, n.StageAttempt = true, t.s.number(), t.stageOf(n).Attempt
		t.appendStep(n, step)
	}
}

// appendStep adds a step to the append-steps command of its stage in this turn.
func (t *turn) appendStep(n *Node, step Step) {
	stage := t.stageOf(n)
	if i, ok := t.appends[stage.Path]; ok {
		t.commands[i].Steps = append(t.commands[i].Steps, step)
		return
	}
	t.appends[stage.Path] = len(t.commands)
	t.command(Command{Kind: AppendSteps, Node: stage.Path, Attempt: stage.Attempt, Steps: []Step{step}})
}

// stepEnded takes the result of a step.
func (t *turn) stepEnded(n *Node, r *Result) {
	if n.Kind != StepNode || !n.Sent || n.Background && t.endsByItself(n, r) {
		return
	}
	t.touch(n)
	n.ExitCode, n.Report = r.ExitCode, r.Report
	failure := known(r.Failure)
	background := t.element(n).step.Type == typeBackground
	if background && !n.Background && failure == "" && n.Ending == "" {
		t.backgroundStarted(n)
		return
	}
	n.Sent = false
	if err := n.take(r.Outputs); err != nil {
		t.fail(n, FailureConfiguration, err.Error())
		return
	}
	switch {
	case n.Ending == Expired:
		t.failEnding(n, FailureTimeout)
	case n.Ending == Failed && n.FailureKind == FailureMarked:
		if above := t.ending(n); above != nil {
			n.FailureKind = kindOf(above.Ending)
			t.end(n, above.Ending, above.Why)
			return
		}
		t.failEnding(n, FailureMarked)
	case n.Ending != "":
		n.FailureKind = FailureAborted
		t.end(n, n.Ending, n.Why)
	case failure == "":
		t.end(n, Succeeded, "")
	case failure == FailureAborted:
		n.FailureKind = FailureAborted
		t.end(n, Aborted, cmp.Or(r.Message, "the step was aborted at the manager"))
	case background:
		n.FailureKind = failure
		t.end(n, failed(failure), failureText(r))
	case failure == FailureTimeout:
		t.fail(n, failure, timeIsOver)
	default:
		t.fail(n, failure, failureText(r))
	}
}

// failEnding applies the failure strategies to a step that was being ended. It may wait then, and can
// be cancelled again.
func (t *turn) failEnding(n *Node, kind FailureKind) {
	why := n.Why
	n.Ending, n.Why = "", ""
	t.fail(n, kind, why)
}

// endsByItself reports whether a result of a started background step says nothing new: its start
// was reported again, or it stops with its stage.
func (t *turn) endsByItself(n *Node, r *Result) bool {
	return r.Failure == "" || n.Ending == "" && r.Failure == FailureAborted && t.stageOf(n).Finishing
}

// backgroundStarted lets the stage go on: a background step is not waited for.
func (t *turn) backgroundStarted(n *Node) {
	n.Background = true
	stage := t.stageOf(n)
	stage.Backgrounds = append(stage.Backgrounds, n.Path)
	t.touch(stage)
	t.leave(t.parent(n), n)
}

// take keeps the outputs of a step without the line break at their end.
func (n *Node) take(outputs map[string]string) error {
	if len(outputs) > maxOutputs {
		return fmt.Errorf("the step has %d outputs: at most %d are possible", len(outputs), maxOutputs)
	}
	total := 0
	for name, value := range outputs {
		if len(value) > maxOutput {
			return fmt.Errorf("the output %s has %d bytes: at most %d are possible", clip(name), len(value), maxOutput)
		}
		total += len(name) + len(value)
	}
	if total > maxOutputBytes {
		return fmt.Errorf("the outputs have %d bytes: at most %d are possible", total, maxOutputBytes)
	}
	for name, value := range outputs {
		if n.Outputs == nil {
			n.Outputs = make(map[string]string, len(outputs))
		}
		n.Outputs[name] = strings.TrimRight(value, "\r\n")
	}
	return nil
}

func failureText(r *Result) string {
	switch {
	case r.Message != "":
		return r.Message
	case r.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *r.ExitCode)
	}
	return "failed: " + string(known(r.Failure))
}

// failed is the status of a node that failed with a kind, unless a failure strategy decides
// otherwise.
func failed(kind FailureKind) Status {
	switch kind {
	case FailureTimeout, FailureInputTimeout:
		return Expired
	case FailureRejected:
		return ApprovalRejected
	case FailureAborted:
		return Aborted
	}
	return Failed
}
