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

func TestARunningStepIsMarkedAsFailed(t *testing.T) {
	t.Parallel()
	mark := func(w *world, path string) error {
		return w.apply(Event{Kind: Answered, Node: path, By: "ada", Answer: &Answer{Action: actionMarkAsFailure, Comment: "it hangs"}})
	}
	w := build(t, run("a", strategies(on("Timeout", "{type: Ignore}"), on("UserMarkedFailure", "{type: Retry, spec: {retryCount: 1, onRetryFailure: {action: {type: MarkAsFailure}}}}")))+run("b", "when: {stageStatus: Failure}"))
	w.hold["a"] = true
	w.begin().drain()
	require.NoError(t, mark(w, w.step("a").Path))
	assert.Equal(t, Cancelling, w.step("a").Status)
	assert.Equal(t, AbortStep, w.commands[len(w.commands)-1].Kind)
	var refused *RefusedError
	require.ErrorAs(t, mark(w, w.step("a").Path), &refused, "it does not run any more")
	w.drain()
	assert.Equal(t, 2, w.step("a").Attempt)
	require.NoError(t, mark(w, w.step("a").Path))
	w.play()
	assert.Equal(t, Failed, w.step("a").Status)
	assert.Equal(t, FailureMarked, w.step("a").FailureKind)
	assert.Contains(t, w.step("a").Reason, "marked as failed by ada: it hangs")
	assert.Equal(t, []string{"a", "a", "b"}, w.started)
	require.ErrorAs(t, mark(w, w.step("b").Path), &refused, "it has ended")

	w = build(t, strings.Replace(run("back"), "type: Run", "type: Background", 1)+run("a"))
	w.hold["a"] = true
	w.begin().drain()
	require.ErrorAs(t, mark(w, w.step("back").Path), &refused)
	require.ErrorAs(t, mark(w, stagePath), &refused)
}

func TestAStrategyAsksForItsValues(t *testing.T) {
	t.Parallel()
	for matrix, answer := range map[string]string{
		`{matrix: {os: "<+input>.executionInput()"}, maxConcurrency: 1}`: "linux, mac", `{repeat: {items: "<+input>.executionInput()"}}`: `["linux", "mac"]`,
	} {
		w := build(t, run("first")+strings.Replace(run("b", "strategy: "+matrix), "echo", "echo <+matrix.os>", 1))
		if strings.Contains(matrix, "repeat") {
			w = build(t, run("first")+strings.Replace(run("b", "strategy: "+matrix), "echo", "echo <+repeat.item>", 1))
		}
		w.begin().drain()
		require.Equal(t, InputWaiting, w.step("b").Status)
		require.Len(t, w.step("b").Inputs, 1)
		require.NoError(t, w.apply(Event{Kind: Answered, Node: w.step("b").Path, Answer: &Answer{Inputs: map[string]string{w.step("b").Inputs[0].Field: answer}}}))
		w.play()
		assert.Equal(t, Succeeded, w.node(rootPath).Status)
		assert.Equal(t, "echo linux", w.steps[w.step("b_0").Path].Spec["command"])
		assert.Equal(t, "echo mac", w.steps[w.step("b_1").Path].Spec["command"])
	}
	w := build(t, group("g", run("a"), `strategy: {parallelism: "<+input>.executionInput()"}`))
	w.begin().drain()
	require.NoError(t, w.apply(Event{Kind: Abort}))
	w.play()
	assert.Equal(t, Aborted, w.node(rootPath).Status)
}

func TestAPersonGivesAWholeStrategy(t *testing.T) {
	t.Parallel()
	for strategy, answer := range map[string]string{
		`"<+input>.executionInput()"`:                                  `{matrix: {os: [linux, "${{secrets.x}}"], exclude: [{os: none}]}, maxConcurrency: 1}`,
		`{matrix: "<+input>.executionInput()", maxConcurrency: 1}`:     `{"os": ["linux", "${{secrets.x}}"]}`,
		`{matrix: "<+input>.executionInput().default({os: [linux]})"}`: `{os: [linux, "${{secrets.x}}"], maxConcurrency: 1}`,
	} {
		w := build(t, run("first")+strings.Replace(run("b", "strategy: "+strategy), "echo", "echo <+matrix.os>", 1))
		w.begin().drain()
		require.Equal(t, InputWaiting, w.step("b").Status, strategy)
		field := w.step("b").Inputs[0].Field
		give := func(value string) error {
			return w.apply(Event{Kind: Answered, Node: w.step("b").Path, Answer: &Answer{Inputs: map[string]string{field: value}}})
		}
		var refused *RefusedError
		for wrong, want := range map[string]string{
			"[1, 2": "input:1", "{os: [<+codebase.branch>]}": "not evaluated", "{matrix: {matrix: {a: [1]}}, parallelism: 2}": "", "x": "must be",
		} {
			require.ErrorAs(t, give(wrong), &refused, wrong)
			assert.Contains(t, refused.Reason, want)
		}
		require.Equal(t, InputWaiting, w.step("b").Status)
		require.NoError(t, give(answer))
		w.play()
		assert.Equal(t, Succeeded, w.node(rootPath).Status)
		assert.Equal(t, []string{"first", "b_0", "b_1"}, w.started)
		assert.Equal(t, "echo linux", w.steps[w.step("b_0").Path].Spec["command"])
		assert.NotContains(t, w.steps[w.step("b_1").Path].Spec["command"], "${{secrets.x}}", "an answer is no reference")
		assert.Equal(t, 1, w.step("b").Limit)
	}
	w := build(t, run("b", `strategy: "<+input>.executionInput().default({parallelism: 3})"`))
	w.begin().drain()
	require.NoError(t, w.apply(Event{Kind: Answered, Node: w.step("b").Path, Answer: &Answer{}}))
	w.play()
	assert.Equal(t, []string{"b_0", "b_1", "b_2"}, w.started)
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

func TestAHeldStageIsRetriedFromAStepOrGroup(t *testing.T) {
	t.Parallel()
	steps := run("a") + group("g", eachStep("b", "c")) + "- parallel:\n" + indent(eachStep("d", "e", "f"), 4) + run("after")
	held := func() *world {
		w := build(t, steps, func(r *Run) { r.HoldFailed = time.Hour })
		w.results["b"] = []Result{{Outputs: map[string]string{"OUT": "1"}}}
		w.results["d"] = []Result{exit(1), {}}
		w.hold["f"] = true
		w.begin().drain()
		require.Equal(t, InterventionWaiting, w.step("d").Status)
		return w
	}
	retry := func(w *world, step string) error {
		return w.apply(Event{Kind: RetryRun, Node: w.step(step).Path, By: "ada"})
	}
	// The failed step itself: the steps beside it go on.
	w := held()
	require.NoError(t, retry(w, "d"))
	assert.Equal(t, "retried from d by ada", w.node("build").Reason)
	w.drain()
	assert.Equal(t, []string{"a", "b", "c", "d", "e", "f", "d"}, w.started)
	assert.Equal(t, Succeeded, w.step("d").Status)
	assert.Equal(t, Running, w.step("f").Status)
	w.send(w.step("f").Path, 1, Result{})
	w.play()
	assert.Equal(t, "after", w.started[len(w.started)-1])
	assert.Equal(t, Succeeded, w.node(rootPath).Status)
	assert.Equal(t, 1, w.step("e").Attempt)

	// A step before it runs again with all that follow, once none of them runs.
	var refused *RefusedError
	w = held()
	require.ErrorAs(t, retry(w, "a"), &refused)
	assert.Contains(t, refused.Reason, "steps.f still runs")
	require.ErrorAs(t, retry(w, "g.steps.b"), &refused)
	assert.Contains(t, refused.Reason, "retry from it")
	w.send(w.step("f").Path, 1, exit(1))
	w.drain()
	require.NoError(t, retry(w, "g"))
	w.results["f"], w.hold = []Result{{}}, nil
	w.play()
	assert.Equal(t, []string{"a", "b", "c", "d", "e", "f", "b", "c", "d", "e", "f", "after"}, w.started)
	assert.Equal(t, Succeeded, w.node(rootPath).Status)
	assert.Equal(t, tally{Succeeded: 7}, w.node("build").Tally, "a, b, c, d, e, f and after, once each")
	assert.Empty(t, w.node("build").Why)
	assert.Equal(t, 2, w.step("g.steps.c").Attempt)

	// Within a running group, and not in a stage that is not held.
	w = build(t, group("g", eachStep("b", "c"))+run("after"), func(r *Run) { r.HoldFailed = time.Hour })
	w.results["c"] = []Result{exit(1), {}}
	w.begin().drain()
	require.NoError(t, retry(w, "g.steps.b"))
	require.ErrorAs(t, retry(w, "g.steps.b"), &refused)
	assert.Contains(t, refused.Reason, "is not held")
	w.play()
	assert.Equal(t, []string{"b", "c", "b", "c", "after"}, w.started)
	assert.Equal(t, tally{Succeeded: 3}, w.node("build").Tally)
	assert.Equal(t, Succeeded, w.node(rootPath).Status)
}

// A group whose time-out is over starts nothing more, also if another step holds its stage.
func TestAGroupWhoseTimeIsOverIsNotRetried(t *testing.T) {
	t.Parallel()
	w := build(t, "- parallel:\n"+indent(group("g", "- parallel:\n"+indent(eachStep("a", "b"), 4), "timeout: 1h")+run("c"), 4), func(r *Run) { r.HoldFailed = 9 * time.Hour })
	w.results["b"], w.results["c"] = []Result{exit(1)}, []Result{exit(1)}
	w.hold["a"] = true
	w.begin().drain()
	require.Equal(t, InterventionWaiting, w.step("g.steps.b").Status)
	require.NoError(t, w.apply(Event{Kind: TimerFired, Node: w.step("g").Path, Attempt: 1, Timer: TimeoutTimer}))
	require.Equal(t, Cancelling, w.step("g").Status)
	var refused *RefusedError
	require.ErrorAs(t, w.apply(Event{Kind: RetryRun, Node: w.step("g.steps.b").Path}), &refused)
	assert.Len(t, w.started, 3)
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
	require.NoError(t, w.apply(Event{Kind: RetryRun}), "without a name it begins with the first stage that did not succeed")
	w.play()
	assert.Equal(t, []string{"step_a", "step_b", "step_d", "step_a", "step_c"}, w.started)
	assert.Equal(t, Succeeded, w.node(rootPath).Status)
	var refused *RefusedError
	require.ErrorAs(t, w.apply(Event{Kind: RetryRun}), &refused)
	assert.Contains(t, refused.Reason, "no stage of the run has failed")
}

// A process that keeps the state of a run learns from the rows of another one which starts there were.
func TestTheNumberOfAStartIsNewAfterThoseOfOtherProcesses(t *testing.T) {
	t.Parallel()
	s := &State{Nodes: map[string]*Node{}}
	assert.Equal(t, 1, s.number())
	s.Put(&Node{Path: "a", Number: 2})
	assert.Equal(t, 3, s.number())
	s.Put(&Node{Path: "a", Past: []Past{{Number: 7}}})
	assert.Equal(t, 8, s.number())
}
