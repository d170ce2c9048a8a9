package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const stagePath = "pipeline.stages.build"

func kinds(commands []Command) string {
	var all []string
	for _, c := range commands {
		all = append(all, string(c.Kind))
	}
	return strings.Join(all, " ")
}

func TestTheTimeoutOfAStepExpiresIt(t *testing.T) {
	t.Parallel()
	w := build(t, run("a", "timeout: 10m")+run("b"))
	w.hold["a"] = true
	w.begin().drain()
	assert.Equal(t, 10*time.Minute, w.steps[w.step("a").Path].Timeout)
	require.True(t, w.tick())
	assert.Equal(t, start.Add(10*time.Minute+5*time.Second), w.now, "the delegate must have time to end the step itself")
	assert.Equal(t, Cancelling, w.step("a").Status)
	assert.Equal(t, AbortStep, w.commands[len(w.commands)-1].Kind)
	w.play()
	assert.Equal(t, Expired, w.step("a").Status)
	assert.Equal(t, FailureTimeout, w.step("a").FailureKind)
	assert.Equal(t, Skipped, w.step("b").Status)
	assert.Equal(t, Expired, w.node(rootPath).Status)

	w = build(t, run("a", "timeout: 10m", strategies(on("Timeout", "{type: Ignore}")))+run("b"))
	w.hold["a"] = true
	w.begin().play()
	assert.Equal(t, IgnoreFailed, w.step("a").Status)
	assert.Equal(t, []string{"a", "b"}, w.started)
}

func TestAStepThatWaitsForAPersonAfterItsTimeoutCanBeAborted(t *testing.T) {
	t.Parallel()
	w := build(t, run("a", "timeout: 10m", strategies(on("Timeout", "{type: ManualIntervention, spec: {timeout: 1h, onTimeout: {action: {type: Ignore}}}}"))))
	w.hold["a"] = true
	w.begin().drain()
	require.True(t, w.tick())
	w.drain()
	require.Equal(t, InterventionWaiting, w.step("a").Status)
	require.NoError(t, w.apply(Event{Kind: Abort, Node: w.step("a").Path}))
	assert.Equal(t, Aborted, w.step("a").Status)
}

func TestTheTimeoutOfAStageExpiresItsSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stage("build", run("a")+run("b", "when: {stageStatus: All}"), "timeout: 1h")+stage("next", run("c")))
	w.hold["a"] = true
	w.begin().drain()
	require.True(t, w.tick())
	assert.Equal(t, Cancelling, w.node("build").Status)
	assert.Equal(t, Cancelling, w.step("a").Status)
	w.play()
	assert.Equal(t, Expired, w.node("build").Status)
	assert.Equal(t, Expired, w.step("a").Status)
	assert.Equal(t, []string{"a"}, w.started, "nothing more runs in an expired stage")
	assert.Equal(t, Skipped, w.node("next").Status)
	assert.Equal(t, Expired, w.node(rootPath).Status)
}

func TestTheTimeoutOfAStageRunsWhileItWaitsForADelegate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stage("build", run("a"), "timeout: 1h", strategies(on("Timeout", "{type: Retry, spec: {retryCount: 1, onRetryFailure: {action: {type: Ignore}}}}"))))
	w.hold["build"] = true
	w.begin().drain()
	assert.Equal(t, Queued, w.node("build").Status)
	assert.Equal(t, "waits for a delegate", w.node("build").Reason)
	w.play()
	assert.Equal(t, 2, w.node("build").Attempt)
	assert.Equal(t, IgnoreFailed, w.node("build").Status)
	assert.Equal(t, start.Add(2*time.Hour), w.now)
}

func TestTheTimeoutOfAPipelineEndsTheRun(t *testing.T) {
	t.Parallel()
	p := "pipeline:\n  identifier: p\n  name: p\n  timeout: 1h\n  stages:\n"
	w := newWorldOf(t, pipeline(t, p+indent(stage("build", run("a", strategies(on("AllErrors", "{type: Ignore}"))))+stage("next", run("b"), "when: {pipelineStatus: All}"), 4)))
	w.hold["a"] = true
	w.begin().play()
	assert.Equal(t, Expired, w.node(rootPath).Status)
	assert.Equal(t, Expired, w.step("a").Status)
	assert.Equal(t, []string{"a"}, w.started)
}

func TestAnAbortWaitsUntilTheManagerHasConfirmedIt(t *testing.T) {
	t.Parallel()
	steps := group("g", "- parallel:\n"+indent(eachStep("a", "b"), 4)) + run("c", "when: {stageStatus: All}")
	for name, test := range map[string]struct {
		node, commands, nodes string
		started               string
	}{
		"the run":  {"", "abort-stage", "a=ABORTED b=ABORTED build=ABORTED g=ABORTED p=ABORTED", "a b"},
		"a stage":  {"pipeline.stages.build", "abort-stage", "a=ABORTED b=ABORTED build=ABORTED g=ABORTED next=SKIPPED p=ABORTED", "a b"},
		"a group":  {stagePath + ".spec.execution.steps.g", "abort-step abort-step", "a=ABORTED b=ABORTED build=ABORTED c=SUCCEEDED g=ABORTED next=SKIPPED p=ABORTED", "a b c"},
		"one step": {stagePath + ".spec.execution.steps.g.steps.a", "abort-step", "a=ABORTED b=SUCCEEDED build=ABORTED c=SUCCEEDED g=ABORTED next=SKIPPED p=ABORTED", "a b c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, stage("build", steps)+stage("next", run("d")))
			w.hold["a"], w.hold["b"] = true, true
			w.begin().drain()
			w.commands = nil
			require.NoError(t, w.apply(Event{Kind: Abort, Node: test.node, By: "ada", Reason: "wrong branch"}))
			assert.Equal(t, test.commands, kinds(w.commands))
			assert.Equal(t, "aborted by ada: wrong branch", w.commands[0].Reason)
			assert.Equal(t, Cancelling, w.step("g.steps.a").Status)
			assert.Equal(t, test.node == "", w.node(rootPath).Status == Cancelling)
			w.commands = nil
			require.NoError(t, w.apply(Event{Kind: Abort, Node: test.node}))
			assert.Empty(t, w.commands, "a second abort changes nothing")
			w.drain()
			if name == "one step" {
				w.send(w.step("g.steps.b").Path, 1, Result{})
			}
			w.play()
			assert.Equal(t, test.nodes, w.statuses())
			assert.Equal(t, test.started, strings.Join(w.started, " "))
			assert.Equal(t, "aborted by ada: wrong branch", w.step("g.steps.a").Reason)
		})
	}
}

func TestAnAbortEndsNodesThatOnlyWait(t *testing.T) {
	t.Parallel()
	for name, strategy := range map[string]string{
		"a retry":         "{type: Retry, spec: {retryCount: 1, retryIntervals: [1h], onRetryFailure: {action: {type: Ignore}}}}",
		"an intervention": "{type: ManualIntervention, spec: {timeout: 1h, onTimeout: {action: {type: Ignore}}}}",
	} {
		w := build(t, run("a", strategies(on("AllErrors", strategy))))
		w.results["a"] = []Result{exit(1)}
		w.begin().drain()
		require.NoError(t, w.apply(Event{Kind: Abort, Node: w.step("a").Path}))
		assert.Equal(t, Aborted, w.step("a").Status, name)
		w.drain()
		assert.Equal(t, Aborted, w.node(rootPath).Status, name)
		assert.Empty(t, w.node(rootPath).Waiting, name)
	}
}

func TestChildrenThatHaveNotStartedAreSkippedWhenTheirStageEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]Event{
		"an abort of the run":     {Kind: Abort},
		"an abort of the loop":    {Kind: Abort, Node: stagePath + ".spec.execution.steps.a"},
		"the end of the stage":    {Kind: StageEnded, Node: stagePath, Attempt: 1, Result: &Result{Failure: FailureUnknown}},
		"the time-out of a stage": {Kind: TimerFired, Node: stagePath, Attempt: 1, Timer: TimeoutTimer},
	} {
		w := build(t, run("a", "strategy: {parallelism: 3, maxConcurrency: 1}"))
		w.hold["a_0"] = true
		w.begin().drain()
		require.NoError(t, w.apply(end))
		w.play()
		assert.Equal(t, []string{"a_0"}, w.started, name)
		assert.Equal(t, Skipped, w.step("a_1").Status, name)
		assert.Contains(t, w.step("a_2").Reason, "the strategy has ended", name)
		assert.True(t, w.node(rootPath).Status.Ended(), name)
		assert.False(t, w.node(rootPath).Status.Positive(), name)
		assert.Zero(t, w.step("a").Active, name)
	}
}

func TestAStageThatEndsEarlyFailsItsSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stage("build", "- parallel:\n"+indent(run("a", strategies(on("AllErrors", retrySpec(""))))+group("g", run("b")), 4)+run("c", "when: {stageStatus: All}"), "")+
		stage("next", run("d", ""), "when: {pipelineStatus: Failure}"))
	w.hold["a"], w.hold["b"] = true, true
	w.begin().drain()
	require.NoError(t, w.apply(Event{
		Kind: StageEnded, Node: stagePath, Attempt: 1, Result: &Result{Failure: FailureDelegateLost, Message: "delegate d1 is gone"},
		Steps: []StepResult{{Node: w.step("g.steps.b").Path, Attempt: 1, Result: outputs("v", "1")}},
	}))
	w.play()
	assert.Equal(t, "a=FAILED b=SUCCEEDED build=FAILED d=SUCCEEDED g=FAILED p=FAILED", strings.Replace(w.statuses(), "g=SUCCEEDED", "g=FAILED", 1))
	assert.Equal(t, FailureDelegateLost, w.step("a").FailureKind)
	assert.Equal(t, "the manager ended the stage before its steps had ended: delegate d1 is gone", w.step("a").Reason)
	assert.Equal(t, []string{"a", "b", "d"}, w.started)
	assert.NotContains(t, kinds(w.commands[len(w.commands)-1:]), "finish-stage "+stagePath)
}

func TestAStageRunsAgainByItsStrategyAfterItWasLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stage("build", eachStep("a", "b"), strategies(on("DelegateRestart", retrySpec("")))))
	w.hold["b"] = true
	w.begin().drain()
	lost := Event{Kind: StageEnded, Node: stagePath, Attempt: 1, Result: &Result{Failure: FailureDelegateLost}}
	require.NoError(t, w.apply(lost))
	w.hold["b"] = false
	require.NoError(t, w.apply(lost), "the second event belongs to the first attempt")
	w.play()
	assert.Equal(t, []string{"a", "b", "a", "b"}, w.started)
	assert.Equal(t, Succeeded, w.node(rootPath).Status)
	assert.Equal(t, 2, w.node("build").Attempt)
	assert.Equal(t, 2, w.step("a").Attempt)
	assert.Len(t, w.step("b").Past, 1)
	assert.Equal(t, Failed, w.step("b").Past[0].Status)
}

func TestAStageThatCannotBeOpenedFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stage("build", eachStep("a")))
	w.results["build"] = []Result{{Failure: FailureImage, Message: "no such image"}}
	w.begin().play()
	assert.Equal(t, Failed, w.node("build").Status)
	assert.Equal(t, FailureImage, w.node("build").FailureKind)
	assert.Equal(t, "the stage could not be opened: no such image", w.node("build").Reason)
	assert.Empty(t, w.started)
}

func TestABackgroundStepStopsWithItsStage(t *testing.T) {
	t.Parallel()
	background := strings.Replace(run("db"), "type: Run", "type: Background", 1)
	w := build(t, background+eachStep("a", "b"))
	w.hold["a"] = true
	w.begin().drain()
	assert.Equal(t, []string{"db", "a"}, w.started)
	assert.Equal(t, Running, w.step("db").Status)
	w.send(w.step("a").Path, 1, Result{})
	w.play()
	assert.Equal(t, Succeeded, w.step("db").Status)
	assert.Equal(t, Succeeded, w.node(rootPath).Status)

	w = build(t, background+eachStep("a", "b"))
	w.hold["a"] = true
	w.begin().drain()
	w.send(w.step("db").Path, 1, exit(1))
	w.drain()
	assert.Equal(t, Failed, w.step("db").Status, "it ended by itself")
	w.send(w.step("a").Path, 1, Result{})
	w.play()
	assert.Equal(t, []string{"db", "a", "b"}, w.started, "its end does not count")
	assert.Equal(t, Succeeded, w.node(rootPath).Status)

	w = newWorld(t, stage("build", background+eachStep("a"), strategies(on("AllErrors", "{type: Ignore}"))))
	w.results["db"] = []Result{{Failure: FailureImage}}
	w.begin().play()
	assert.Equal(t, Failed, w.step("db").Status, "it did not start, and has no failure strategy")
	assert.Equal(t, []string{"db"}, w.started)
	assert.Equal(t, Failed, w.node(rootPath).Status)
}
