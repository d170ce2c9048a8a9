package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// on writes a failure strategy for errors, with an action in the form of a map.
func on(errors, action string) string {
	return "- onFailure: {errors: [" + errors + "], action: " + action + "}\n"
}

func strategies(all ...string) string {
	return "failureStrategies:\n" + indent(strings.Join(all, ""), 2)
}

func retrySpec(more string) string {
	return "{type: Retry, spec: {retryCount: 2, onRetryFailure: {action: {type: MarkAsFailure}}" + more + "}}"
}

func TestAFailureStrategyDecidesWhatAFailureMeans(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stage, step string
		results     []Result // of step a
		started     string
		status      Status // of step a
		reason      string
		run         Status
	}{
		"none":                        {results: []Result{exit(2)}, started: "a", status: Failed, reason: "exit code 2", run: Failed},
		"ignore":                      {step: on("AllErrors", "{type: Ignore}"), results: []Result{exit(2)}, started: "a b", status: IgnoreFailed, reason: "ignored: exit code 2", run: IgnoreFailed},
		"mark as success":             {step: on("Unknown", "{type: MarkAsSuccess}"), results: []Result{exit(2)}, started: "a b", status: Succeeded, reason: "marked as success: exit code 2", run: Succeeded},
		"mark as failure":             {step: on("AllErrors", "{type: MarkAsFailure}"), results: []Result{exit(2)}, started: "a always", status: Failed, reason: "exit code 2", run: Failed},
		"abort":                       {step: on("AllErrors", "{type: Abort}"), results: []Result{exit(2)}, started: "a", status: Aborted, reason: "exit code 2", run: Aborted},
		"stage rollback":              {stage: on("AllErrors", "{type: StageRollback}"), results: []Result{exit(2)}, started: "a", status: Failed, reason: "exit code 2", run: Failed},
		"pipeline rollback":           {stage: on("AllErrors", "{type: PipelineRollback}"), results: []Result{exit(2)}, started: "a", status: Failed, reason: "exit code 2", run: Failed},
		"of the stage":                {stage: on("AllErrors", "{type: Ignore}"), results: []Result{exit(2)}, started: "a b", status: IgnoreFailed, reason: "ignored: exit code 2", run: IgnoreFailed},
		"the step over the stage":     {stage: on("AllErrors", "{type: Ignore}"), step: on("AllErrors", "{type: MarkAsSuccess}"), results: []Result{exit(2)}, started: "a b", status: Succeeded, reason: "marked as success: exit code 2", run: Succeeded},
		"the first that matches":      {step: on("Timeout", "{type: Abort}") + on("Unknown", "{type: Ignore}") + on("AllErrors", "{type: Abort}"), results: []Result{exit(2)}, started: "a b", status: IgnoreFailed, reason: "ignored: exit code 2", run: IgnoreFailed},
		"no match falls to the stage": {stage: on("Unknown", "{type: Ignore}"), step: on("Timeout", "{type: Abort}"), results: []Result{exit(2)}, started: "a b", status: IgnoreFailed, reason: "ignored: exit code 2", run: IgnoreFailed},
		"no match at all":             {stage: on("Connectivity", "{type: Ignore}"), results: []Result{exit(2)}, started: "a", status: Failed, reason: "exit code 2", run: Failed},
		"retry":                       {step: on("AllErrors", retrySpec("")), results: []Result{exit(2), exit(2), {}}, started: "a a a b", status: Succeeded, run: Succeeded},
		"retries used up":             {step: on("AllErrors", retrySpec("")), results: []Result{exit(2)}, started: "a a a", status: Failed, reason: "exit code 2", run: Failed},
		"then ignored":                {step: on("AllErrors", strings.Replace(retrySpec(""), "MarkAsFailure", "Ignore", 1)), results: []Result{exit(2)}, started: "a a a b", status: IgnoreFailed, reason: "ignored: exit code 2", run: IgnoreFailed},
		"a condition of the retry":    {step: on("AllErrors", retrySpec(", condition: '<+step.exitCode> == 137'")), results: []Result{exit(137), exit(1)}, started: "a a", status: Failed, reason: "exit code 1; no retry: the condition of the retry is false", run: Failed},
		"the count in a condition":    {step: on("AllErrors", retrySpec(", condition: '<+execution.steps.a.retryCount> == 0'")), results: []Result{exit(1)}, started: "a a", status: Failed, reason: "exit code 1; no retry: the condition of the retry is false", run: Failed},
		"no group to retry":           {step: on("AllErrors", "{type: RetryStepGroup, spec: {retryCount: 1}}"), results: []Result{exit(1)}, started: "a", status: Failed, reason: "exit code 1; no retry: the step is not in a group", run: Failed},
		"no input to proceed with":    {step: on("AllErrors", "{type: ProceedWithDefaultValues}"), results: []Result{exit(1)}, started: "a", status: Failed, reason: "exit code 1", run: Failed},
		"an abort at the manager":     {step: on("AllErrors", "{type: Ignore}"), results: []Result{{Failure: FailureAborted, Message: "by an operator"}}, started: "a", status: Aborted, reason: "by an operator", run: Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var own, of string
			if test.step != "" {
				own = strategies(test.step)
			}
			if test.stage != "" {
				of = strategies(test.stage)
			}
			always := ""
			if strings.Contains(test.started, "always") {
				always = run("always", "when: {stageStatus: All}")
			}
			if strings.Contains(name, "rollback") {
				always = run("later", "when: {stageStatus: All}")
			}
			w := newWorld(t, stage("build", run("a", own)+run("b")+always, of))
			w.results["a"] = test.results
			w.begin().play()
			assert.Equal(t, test.started, strings.Join(w.started, " "))
			a := w.step("a")
			assert.Equal(t, test.status, a.Status)
			assert.Equal(t, test.reason, a.Reason)
			assert.Equal(t, test.run, w.node(rootPath).Status)
		})
	}
}

func TestEachKindOfFailureMatchesItsErrors(t *testing.T) {
	t.Parallel()
	for kind, errors := range map[FailureKind]string{
		FailureExitCode: "Unknown", FailureTimeout: "Timeout", FailureImage: "PluginImageFailure", FailureConnectivity: "Connectivity",
		FailureOutOfMemory: "ResourceLimitsFailure", FailureDelegateLost: "DelegateRestart", FailureRefused: "DelegateProvisioning",
		FailureUnknown: "Unknown", FailureInfrastructure: "InfrastructureFailure",
		FailureConfiguration: "ConfigurationFailure",
	} {
		for _, errors := range []string{errors, "AllErrors"} {
			w := build(t, run("a", strategies(on("Verification", "{type: Abort}"), on(errors, "{type: Ignore}"))))
			w.results["a"] = []Result{{Failure: kind}}
			w.begin().play()
			assert.Equal(t, IgnoreFailed, w.step("a").Status, "%s by %s", kind, errors)
			assert.Equal(t, kind, w.step("a").FailureKind)
		}
	}
}

func TestARetryWaitsForItsInterval(t *testing.T) {
	t.Parallel()
	w := build(t, run("a", strategies(on("AllErrors", "{type: Retry, spec: {retryCount: 3, retryIntervals: [10s, 1m], onRetryFailure: {action: {type: MarkAsFailure}}}}"))))
	w.results["a"] = []Result{exit(1)}
	w.begin().drain()
	var waits []time.Duration
	for !w.node(rootPath).Status.Ended() {
		a := w.step("a")
		require.Equal(t, Queued, a.Status)
		require.Contains(t, a.Reason, "after: exit code 1")
		waits = append(waits, a.Due.Sub(w.now))
		require.True(t, w.tick())
		w.drain()
	}
	assert.Equal(t, []time.Duration{10 * time.Second, time.Minute, time.Minute}, waits, "the last interval repeats")
	assert.Equal(t, 4, w.step("a").Attempt)
	assert.Equal(t, 3, w.step("a").Retries)
}

func TestAStageThatRolledBackIsNoFailureForTheNextStages(t *testing.T) {
	t.Parallel()
	for action, started := range map[string][]string{
		"MarkAsFailure": {"a", "b", "c"}, "StageRollback": {"a", "c"}, "PipelineRollback": {"a"},
	} {
		w := newWorld(t, stage("x", run("a"), strategies(on("AllErrors", "{type: "+action+"}")))+
			stage("y", run("b"), "when: {pipelineStatus: Failure}")+stage("z", run("c"), "when: {pipelineStatus: All}"))
		w.results["a"] = []Result{exit(1)}
		w.begin().play()
		assert.Equal(t, started, w.started, action)
		assert.Equal(t, Failed, w.node(rootPath).Status)
	}
}

func TestTheStrategyOfAGroupAppliesToItsSteps(t *testing.T) {
	t.Parallel()
	w := build(t, group("g", eachStep("a", "b"), strategies(on("AllErrors", "{type: Ignore}"))))
	w.results["a"] = []Result{exit(1)}
	w.begin().play()
	assert.Equal(t, []string{"a", "b"}, w.started)
	assert.Equal(t, IgnoreFailed, w.step("g").Status)
	assert.Equal(t, IgnoreFailed, w.node("build").Status)
}

func TestAGroupIsRetriedAsAWhole(t *testing.T) {
	t.Parallel()
	steps := group("g", eachStep("a")+"- parallel:\n"+indent(eachStep("b", "c"), 4)+eachStep("d"),
		strategies(on("AllErrors", "{type: RetryStepGroup, spec: {retryCount: 2, retryIntervals: [10s]}}"))) + eachStep("e")
	w := build(t, steps)
	w.results["b"] = []Result{exit(1), {}}
	w.begin().play()
	assert.Equal(t, []string{"a", "b", "c", "a", "b", "c", "d", "e"}, w.started)
	assert.Equal(t, Succeeded, w.node(rootPath).Status)
	assert.Equal(t, 2, w.step("g").Attempt)
	assert.Equal(t, 2, w.step("g.steps.c").Attempt)
	assert.Empty(t, w.node("build").Failures, "the failure is of an earlier attempt")
	assert.Equal(t, start.Add(10*time.Second), w.now)

	w = build(t, steps)
	w.results["b"] = []Result{exit(1)}
	w.begin().play()
	assert.Equal(t, []string{"a", "b", "c", "a", "b", "c", "a", "b", "c"}, w.started)
	assert.Equal(t, Failed, w.node(rootPath).Status)
	assert.Equal(t, "exit code 1; the group failed after 2 retries", w.step("g.steps.b").Reason)
}

func TestARetryOfAGroupHasAConditionAndAnEnd(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]struct {
		started string
		status  Status
		reason  string
	}{
		"retryCount: 1, onRetryFailure: {action: {type: Ignore}}":                                     {"a b a b e", IgnoreFailed, "ignored: exit code 1"},
		"retryCount: 3, condition: '<+step.exitCode> == 137'":                                         {"a b", Failed, "exit code 1; no retry: the condition of the retry is false"},
		"retryCount: 1, condition: '<+step.exitCode> == 1', onRetryFailure: {action: {type: Ignore}}": {"a b a b e", IgnoreFailed, "ignored: exit code 1"},
	} {
		w := build(t, group("g", eachStep("a", "b"), strategies(on("AllErrors", "{type: RetryStepGroup, spec: {"+spec+"}}")))+eachStep("e"))
		w.results["b"] = []Result{exit(1)}
		w.begin().play()
		assert.Equal(t, want.started, strings.Join(w.started, " "), spec)
		assert.Equal(t, want.status, w.step("g").Status, spec)
		assert.Equal(t, want.reason, w.step("g.steps.b").Reason, spec)
	}
}

func TestAGroupIsNotRetriedInAStageThatRolledBack(t *testing.T) {
	t.Parallel()
	// The strategy of the group makes it run again only when all its steps have ended.
	w := build(t, "- parallel:\n"+indent(group("g", "- parallel:\n"+indent(eachStep("a", "c"), 4), strategies(on("AllErrors", "{type: RetryStepGroup, spec: {retryCount: 2}}")))+
		run("b", strategies(on("AllErrors", "{type: StageRollback}"))), 4))
	w.results["a"], w.results["b"] = []Result{exit(1)}, []Result{exit(1)}
	w.hold["c"] = true
	w.begin().drain()
	w.send(w.step("g.steps.c").Path, 1, Result{})
	w.play()
	assert.Equal(t, []string{"b", "a", "c"}, w.started)
	assert.Equal(t, Failed, w.step("g").Status)
	assert.Equal(t, 1, w.step("g").Attempt)
}

func TestAGroupThatRunsAgainAbortsItsBackgroundSteps(t *testing.T) {
	t.Parallel()
	w := build(t, group("g", strings.Replace(run("db"), "type: Run", "type: Background", 1)+eachStep("a"),
		strategies(on("AllErrors", "{type: RetryStepGroup, spec: {retryCount: 2}}"))))
	w.results["a"] = []Result{exit(1), {}}
	w.begin().play()
	assert.Equal(t, []string{"db", "a", "db", "a"}, w.started)
	assert.Contains(t, kinds(w.commands), string(AbortStep))
	assert.Equal(t, Succeeded, w.step("g.steps.db").Status)
	assert.Equal(t, Succeeded, w.node(rootPath).Status)
}

func TestAnInterventionWithoutAnswerMayRetry(t *testing.T) {
	t.Parallel()
	w := build(t, run("a", strategies(on("AllErrors", "{type: ManualIntervention, spec: {timeout: 1h, onTimeout: {action: {type: Retry, spec: {retryCount: 2, onRetryFailure: {action: {type: Ignore}}}}}}}"))))
	w.results["a"] = []Result{exit(1)}
	w.begin().play()
	assert.Equal(t, []string{"a", "a", "a"}, w.started)
	assert.Equal(t, IgnoreFailed, w.step("a").Status)
	assert.Equal(t, start.Add(3*time.Hour), w.now)
}

func TestAManualInterventionWaitsForAnAnswer(t *testing.T) {
	t.Parallel()
	const intervention = "{type: ManualIntervention, spec: {timeout: 1h, onTimeout: {action: {type: Ignore}}}}"
	for name, test := range map[string]struct {
		answer  string
		started string
		run     Status
	}{
		"retry":        {"Retry", "a a b", Succeeded},
		"ignore":       {"Ignore", "a b", IgnoreFailed},
		"success":      {"MarkAsSuccess", "a b", Succeeded},
		"failure":      {"MarkAsFailure", "a", Failed},
		"abort":        {"Abort", "a", Aborted},
		"rollback":     {"StageRollback", "a", Failed},
		"the time-out": {"", "a b", IgnoreFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := build(t, eachStep()+run("a", strategies(on("AllErrors", intervention)))+run("b"))
			w.results["a"] = []Result{exit(1), {}}
			w.begin().drain()
			for _, path := range []string{"build.spec.execution.steps.a", "build", rootPath} {
				assert.Equal(t, InterventionWaiting, w.node(path).Status, path)
			}
			if test.answer == "" {
				require.True(t, w.tick())
			} else {
				var refused *RefusedError
				require.ErrorAs(t, w.apply(Event{Kind: Answered, Node: w.step("a").Path, Answer: &Answer{Action: "Sing"}}), &refused)
				require.NoError(t, w.apply(Event{Kind: Answered, Node: w.step("a").Path, Attempt: 1, Answer: &Answer{Action: test.answer}, By: "ada"}))
			}
			w.play()
			assert.Equal(t, test.started, strings.Join(w.started, " "))
			assert.Equal(t, test.run, w.node(rootPath).Status)
			var refused *RefusedError
			require.ErrorAs(t, w.apply(Event{Kind: Answered, Node: w.step("a").Path, Attempt: 1, Answer: &Answer{Action: "Retry"}}), &refused)
		})
	}
}

func TestAGroupEndsWithItsTimeout(t *testing.T) {
	t.Parallel()
	w := build(t, group("g", eachStep("a", "b"), "timeout: 1m")+run("after", "when: {stageStatus: All}"))
	w.hold["a"] = true
	w.begin().play()
	assert.Equal(t, []string{"a", "after"}, w.started)
	assert.Equal(t, Expired, w.step("g").Status)
	assert.Equal(t, Expired, w.step("g.steps.a").Status)
	assert.Equal(t, timeIsOver, w.step("g").Reason)
	assert.Equal(t, Expired, w.node(rootPath).Status)
	assert.Equal(t, start.Add(time.Minute), w.now)

	w = build(t, group("g", eachStep("a", "b"), "timeout: 1m")) // the time of the group has no effect after its end
	w.begin().play()
	assert.Equal(t, Succeeded, w.node(rootPath).Status)
	w = build(t, group("g", eachStep("a"), `timeout: "<+pipeline.name>"`)+run("b"))
	w.begin().play()
	assert.Empty(t, w.started)
	assert.Equal(t, Failed, w.step("g").Status)
	assert.Contains(t, w.step("g").Reason, "must be a time such as")
	assert.Equal(t, Failed, w.node(rootPath).Status)
}
