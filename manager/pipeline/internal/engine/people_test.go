package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAStepAsksForItsInputsWhenItsTurnComes(t *testing.T) {
	t.Parallel()
	step := func(more ...string) string {
		return strings.Replace(run("b", more...), "command: echo", `command: "<+input>.executionInput().default(hi)", envVariables: {A: "<+input>.executionInput().allowedValues(x,y)"}`, 1)
	}
	asking := func(more ...string) *world {
		w := build(t, run("a")+step(more...))
		w.begin().drain()
		return w
	}
	w := asking()
	assert.Equal(t, []string{"a"}, w.started)
	assert.Equal(t, InputWaiting, w.step("b").Status)
	assert.Equal(t, InputWaiting, w.node(rootPath).Status)
	require.Len(t, w.step("b").Inputs, 2)
	b := w.step("b").Path
	for _, wrong := range []map[string]string{nil, {"spec.other": "x"}, {"spec.envVariables.A": "z"}} {
		var refused *RefusedError
		require.ErrorAs(t, w.apply(Event{Kind: Answered, Node: b, Answer: &Answer{Inputs: wrong}}), &refused)
	}
	require.NoError(t, w.apply(Event{Kind: Answered, Node: b, Attempt: 1, By: "ada", Answer: &Answer{Inputs: map[string]string{"spec.envVariables.A": "x"}}}))
	assert.Equal(t, Running, w.node(rootPath).Status)
	w.play()
	assert.Equal(t, map[string]any{"command": "hi", "envVariables": map[string]any{"A": "x"}}, w.steps[b].Spec)
	assert.Equal(t, "ada", w.step("b").Answered)

	w = asking("timeout: 1h", strategies(on("InputTimeoutError", "{type: ProceedWithDefaultValues}")))
	w.play()
	assert.Equal(t, Expired, w.step("b").Status)
	assert.Equal(t, "the time for inputs is over: spec.envVariables.A has no default", w.step("b").Reason)

	w = build(t, strings.Replace(run("b", "timeout: 1h", strategies(on("InputTimeoutError", "{type: ProceedWithDefaultValues}"))), "echo", `"<+input>.executionInput().default(hi)"`, 1))
	w.begin().play()
	assert.Equal(t, Succeeded, w.step("b").Status)
	assert.Equal(t, "hi", w.steps[w.step("b").Path].Spec["command"])
}

func TestTheTimerOfAnInputDoesNotEndALaterIntervention(t *testing.T) {
	t.Parallel()
	w := build(t, strings.Replace(run("a", "timeout: 10s", strategies(on("AllErrors", "{type: ManualIntervention, spec: {timeout: 1h, onTimeout: {action: {type: Ignore}}}}"))),
		"echo", `"<+input>.executionInput()"`, 1))
	w.results["a"] = []Result{exit(1)}
	w.begin().drain()
	require.NoError(t, w.apply(Event{Kind: Answered, Node: w.step("a").Path, Answer: &Answer{Inputs: map[string]string{"spec.command": "x"}}}))
	w.drain()
	for range 2 { // the timers of the input and of the step
		require.True(t, w.tick())
		assert.Equal(t, InterventionWaiting, w.step("a").Status)
	}
	w.play()
	assert.Equal(t, IgnoreFailed, w.step("a").Status)
	assert.Equal(t, start.Add(time.Hour), w.now)
}

func TestAnAnswerIsNeverEvaluatedAndNeverAReference(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"<+secrets.getValue(\"prod\")>", "<+pipeline.name>", "a > b"} {
		w := build(t, strings.Replace(run("b"), "echo", `"<+input>.executionInput()"`, 1))
		w.begin().drain()
		b := w.step("b").Path
		require.NoError(t, w.apply(Event{Kind: Answered, Node: b, Answer: &Answer{Inputs: map[string]string{"spec.command": answer}}}))
		w.play()
		assert.Equal(t, answer, w.steps[b].Spec["command"])
	}
	w := build(t, strings.Replace(run("b"), "echo", `"<+input>.executionInput()"`, 1))
	w.begin().drain()
	b := w.step("b").Path
	require.NoError(t, w.apply(Event{Kind: Answered, Node: b, Answer: &Answer{Inputs: map[string]string{"spec.command": "${{secrets.prod}}"}}}))
	w.play()
	assert.NotContains(t, w.steps[b].Spec["command"], "${{secrets.prod}}")
}

func TestAnApprovalWaitsForAPerson(t *testing.T) {
	t.Parallel()
	approval := func(more ...string) string {
		return strings.Replace(strings.Replace(run("ok", more...), "type: Run", "type: HarnessApproval", 1), "command: echo", "approvalMessage: ship <+pipeline.name>", 1)
	}
	w := build(t, approval()+run("b"))
	w.begin().drain()
	assert.Equal(t, ApprovalWaiting, w.node(rootPath).Status)
	assert.Equal(t, "ship p", w.step("ok").Reason)
	require.NoError(t, w.apply(Event{Kind: Answered, Node: w.step("ok").Path, By: "ada", Answer: &Answer{Approve: true, Comment: "fine"}}))
	w.play()
	assert.Equal(t, Succeeded, w.node(rootPath).Status)
	assert.Equal(t, "fine", w.step("ok").Reason)
	assert.Equal(t, []string{"b"}, w.started)

	w = build(t, approval()+run("b"))
	w.begin().drain()
	require.NoError(t, w.apply(Event{Kind: Answered, Node: w.step("ok").Path, By: "ada", Answer: &Answer{}}))
	w.play()
	assert.Equal(t, ApprovalRejected, w.step("ok").Status)
	assert.Equal(t, ApprovalRejected, w.node(rootPath).Status)
	assert.Empty(t, w.started)

	w = build(t, approval("timeout: 1d", strategies(on("Timeout", "{type: Ignore}")))+run("b"))
	w.begin().play()
	assert.Equal(t, IgnoreFailed, w.step("ok").Status)
	assert.Equal(t, []string{"b"}, w.started)
}

func TestAFailedStepCanBeRetriedWhileItsStageIsHeld(t *testing.T) {
	t.Parallel()
	w := build(t, eachStep("a", "b"), func(r *Run) { r.HoldFailed = time.Hour })
	w.results["a"] = []Result{exit(1), {}}
	w.begin().drain()
	assert.Equal(t, InterventionWaiting, w.node(rootPath).Status)
	require.NoError(t, w.apply(Event{Kind: Answered, Node: w.step("a").Path, By: "ada", Answer: &Answer{Action: "Retry"}}))
	assert.Equal(t, Running, w.node(rootPath).Status)
	assert.Empty(t, w.node("build").Waiting)
	w.play()
	assert.Equal(t, []string{"a", "a", "b"}, w.started)
	assert.Equal(t, Succeeded, w.node(rootPath).Status)

	w = build(t, eachStep("a", "b"), func(r *Run) { r.HoldFailed = time.Hour })
	w.results["a"] = []Result{exit(1)}
	w.begin().play()
	assert.Equal(t, Failed, w.step("a").Status)
	assert.Equal(t, start.Add(time.Hour), w.now)
}

func TestARunIsRetriedFromAStage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stage("x", run("a"))+"- parallel:\n"+indent(stage("y", run("b"))+stage("z", run("c")), 4)+
		stage("last", strings.Replace(run("d"), "echo", "<+stages.x.spec.execution.steps.a.output.outputVariables.v> <+stages.z.spec.execution.steps.c.status>", 1)))
	w.results["a"] = []Result{outputs("v", "1")}
	w.results["b"] = []Result{exit(1), {}}
	w.begin().play()
	require.Equal(t, Failed, w.node(rootPath).Status)
	require.Equal(t, []string{"a", "b", "c"}, w.started)
	var refused *RefusedError
	require.ErrorAs(t, w.apply(Event{Kind: RetryRun, Node: "pipeline"}), &refused)
	require.ErrorAs(t, w.apply(Event{Kind: RetryRun, Node: "pipeline.stages.none"}), &refused)
	require.ErrorAs(t, w.apply(Event{Kind: RetryRun, Node: w.node("y.spec.execution.steps.b").Path}), &refused)
	retry := Event{Kind: RetryRun, Node: "pipeline.stages.y", Attempt: 1, By: "ada"}
	require.NoError(t, w.apply(retry))
	require.NoError(t, w.apply(retry), "a repeated retry changes nothing")
	assert.Equal(t, "retried by ada from the stage y", w.node(rootPath).Reason)
	w.play()
	assert.Equal(t, []string{"a", "b", "c", "b", "d"}, w.started)
	assert.Equal(t, Succeeded, w.node(rootPath).Status)
	assert.Equal(t, 2, w.node(rootPath).Attempt)
	assert.Equal(t, "1 SUCCEEDED", w.steps[w.node("last.spec.execution.steps.d").Path].Spec["command"])
	assert.Equal(t, Failed, w.node("y").Past[0].Status)

	// From an earlier stage, everything after it runs again.
	require.NoError(t, w.apply(Event{Kind: RetryRun, Node: "pipeline.stages.x"}))
	assert.Equal(t, NotStarted, w.node("last").Status)
	w.play()
	assert.Equal(t, []string{"a", "b", "c", "b", "d", "a", "b", "c", "d"}, w.started)
	assert.Equal(t, Succeeded, w.node(rootPath).Status)
}

func TestARunThatIsAGraphIsRetriedFromAStage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dependent("a", "[]")+dependent("b", "[]")+dependent("c", "[a, b]")+dependent("d", "[b]"))
	w.results["step_a"] = []Result{exit(1), {}}
	w.begin().play()
	require.Equal(t, []string{"step_a", "step_b", "step_d"}, w.started)
	require.NoError(t, w.apply(Event{Kind: RetryRun, Node: "pipeline.stages.a"}))
	w.play()
	assert.Equal(t, []string{"step_a", "step_b", "step_d", "step_a", "step_c"}, w.started)
	assert.Equal(t, Succeeded, w.node(rootPath).Status)
}
