package manager_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// open opens the stage "s", with a lease of a minute, at a delegate that has passed the
// init.
func (s *server) open(more string) (delegate string) {
	s.t.Helper()
	delegate = s.register("d", dockerTypes)
	s.submit(`{"id":"s","hold":{"lease_ms":60000}` + more + `}`)
	s.pass(delegate, dockerTypes[0], succeeded)
	return delegate
}

// appendSteps appends steps with the given ids to the stage "s".
func (s *server) appendSteps(ids ...string) (st api.Stage) {
	s.t.Helper()
	s.ok("POST", "/api/stages/s/steps?accountId=acc", stepsBody(ids...), &st)
	return st
}

func stepsBody(ids ...string) string {
	all := make([]string, 0, len(ids))
	for _, id := range ids {
		all = append(all, fmt.Sprintf(`{"id":%q,"data":{"run":{"commands":[%[1]q]}}}`, id))
	}
	return `{"steps":[` + strings.Join(all, ",") + `]}`
}

// change posts a call about the stage "s".
func (s *server) change(verb string) (st api.Stage) {
	s.t.Helper()
	s.ok("POST", "/api/stages/s/"+verb+"?accountId=acc", "", &st)
	return st
}

// tasks returns the ids of the tasks that are offered to a delegate, by their steps.
func (s *server) tasks(delegate string) map[string]string {
	s.t.Helper()
	ids := map[string]string{}
	st := s.stage("s")
	for _, e := range s.poll(delegate).Events {
		for _, p := range append(st.Steps, st.Init, st.Cleanup) {
			if p.TaskID == e.TaskID {
				ids[p.ID] = e.TaskID
			}
		}
	}
	return ids
}

func stepOf(t *testing.T, st api.Stage, id string) api.StepState {
	t.Helper()
	for _, p := range st.Steps {
		if p.ID == id {
			return p
		}
	}
	require.Fail(t, "no step", "%s in %+v", id, st)
	return api.StepState{}
}

func TestAppendedStepsRunAtTheSameTimeUntilTheStageIsFinished(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.open("")
	assert.Empty(t, s.poll(d).Events, "the cleanup waits for the holder")
	assert.True(t, s.stage("s").Open)

	s.appendSteps("one", "two")
	tasks := s.tasks(d)
	require.Len(t, tasks, 2)
	for _, id := range tasks {
		require.Equal(t, 200, s.acquire(d, id).status)
	}
	s.appendSteps("three")
	require.Equal(t, 204, s.respond(d, tasks["one"],
		`{"code":"OK","data":{"command_execution_status":"SUCCESS","output_vars":{"V":"1"}}}`))
	st := s.change("finish")
	assert.False(t, st.Open)
	assert.Equal(t, map[string]string{"V": "1"}, stepOf(t, st, "one").OutputVars)
	assert.Equal(t, api.Running, stepOf(t, st, "two").Status)
	assert.Equal(t, api.Queued, st.Cleanup.Status)

	require.Equal(t, 204, s.respond(d, tasks["two"], `{"code":"OK","data":{"command_execution_status":"FAILURE","exit_code":3}}`))
	s.pass(d, dockerTypes[1], succeeded)
	s.pass(d, dockerTypes[2], succeeded)
	st = s.ended("s")
	assert.Equal(t, api.Failure, st.Status)
	assert.Equal(t, api.FailureExitCode, st.FailureKind)
	assert.Equal(t, api.FailureExitCode, stepOf(t, st, "two").FailureKind)
	assert.Empty(t, stepOf(t, st, "one").FailureKind)
}

func TestTheEndOfALeaseStopsTheStepsAndRunsTheCleanup(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.open("")
	s.appendSteps("one")
	task := s.take(d, dockerTypes[1])
	s.clock.Advance(40 * time.Second)
	s.beat(d)
	s.change("renew")
	s.clock.Advance(40 * time.Second)
	s.beat(d)
	require.Empty(t, s.poll(d).Aborted, "the lease was renewed")
	s.advanceUntil(20*time.Second, func() bool { return len(s.poll(d).Aborted) == 1 })
	require.Equal(t, 204, s.respond(d, task.ID, succeeded))
	s.pass(d, dockerTypes[2], succeeded)
	st := s.ended("s")
	assert.Equal(t, api.Failure, st.Status)
	assert.Equal(t, api.FailureLeaseEnded, st.FailureKind)
	assert.Contains(t, st.Error, "lease")
	assert.Equal(t, api.FailureAborted, stepOf(t, st, "one").FailureKind)
}

func TestAnAppendedStepIsToldTheDelegateOfItsStage(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.open("")
	own := fmt.Sprintf(`"HARNESS_DELEGATE_ID":%q`, d)
	for i, c := range []struct{ environment, want string }{
		{`{"A":"1"}`, `{"A":"1",` + own + `}`},
		{`{"HARNESS_DELEGATE_ID":"mine"}`, `{"HARNESS_DELEGATE_ID":"mine"}`},
		{`null`, `{` + own + `}`},
	} {
		require.Equal(t, 202, s.call("POST", "/api/stages/s/steps?accountId=acc", fmt.Sprintf(`{"steps":[{"id":"s%d","data":{"environment":%s}}]}`, i, c.environment)).status)
		got := s.take(d, dockerTypes[1])
		var data struct{ Environment json.RawMessage }
		require.NoError(t, json.Unmarshal(got.Data, &data))
		assert.JSONEq(t, c.want, string(data.Environment))
		require.Equal(t, 204, s.respond(d, got.ID, succeeded))
	}
}

func TestARepeatedAppendChangesNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.open("")
	const path = "/api/stages/s/steps?accountId=acc"
	require.Equal(t, 202, s.call("POST", path, stepsBody("one")).status)
	before := s.stage("s")
	require.Equal(t, 200, s.call("POST", path, stepsBody("one")).status)
	assert.Equal(t, before, s.stage("s"))

	r := s.call("POST", path, `{"steps":[{"id":"two"},{"id":"one","data":{"run":{"commands":["rm"]}}}]}`)
	require.Equal(t, 409, r.status)
	assert.Contains(t, r.body, `another step \"one\"`)
	assert.Len(t, s.stage("s").Steps, 1, "an append has all its steps or none")
	require.Equal(t, 202, s.call("POST", path, stepsBody("one", "two")).status, "one of them is new")

	s.change("finish")
	require.Equal(t, 200, s.call("POST", path, stepsBody("two", "one")).status, "the answer may have been lost")
	r = s.call("POST", path, stepsBody("two", "three"))
	require.Equal(t, 409, r.status)
	assert.Contains(t, r.body, "it was finished")
	s.change("finish")
	s.pass2(d, "one", "two")
	s.pass(d, dockerTypes[2], succeeded)
	s.ended("s")
	require.Equal(t, 200, s.call("POST", path, stepsBody("one")).status, "also after the end")
	s.change("finish")
	require.Equal(t, 409, s.call("POST", "/api/stages/s/renew?accountId=acc", "").status)
}

// pass2 acquires the tasks of steps and lets them succeed.
func (s *server) pass2(delegate string, steps ...string) {
	s.t.Helper()
	tasks := s.tasks(delegate)
	for _, id := range steps {
		require.Equal(s.t, 200, s.acquire(delegate, tasks[id]).status, id)
		require.Equal(s.t, 204, s.respond(delegate, tasks[id], succeeded))
	}
}

func TestStepsThatAreAppendedBeforeTheInitHasEndedWaitForIt(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit(`{"id":"s","hold":{"lease_ms":60000},"steps":[{"id":"first"},{"id":"second"}]}`)
	s.appendSteps("one")
	d := s.register("d", dockerTypes)
	init := s.take(d, dockerTypes[0])
	s.appendSteps("two")
	s.change("finish")
	assert.Empty(t, s.poll(d).Events)
	require.Equal(t, 204, s.respond(d, init.ID, succeeded))
	assert.Len(t, s.tasks(d), 3, "the first step of the submission runs beside the appended ones")
	s.pass2(d, "one", "two")
	s.pass(d, dockerTypes[1], succeeded)
	s.pass(d, dockerTypes[1], succeeded)
	s.pass(d, dockerTypes[2], succeeded)
	assert.Equal(t, api.Success, s.ended("s").Status)
}

func TestAppendedStepsAreSkippedAfterAFailedInit(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit(`{"id":"s","hold":{"lease_ms":60000}}`)
	s.appendSteps("one")
	d := s.register("d", dockerTypes)
	s.pass(d, dockerTypes[0], `{"code":"OK","data":{"command_execution_status":"FAILURE","failure_kind":"image"}}`)
	r := s.call("POST", "/api/stages/s/steps?accountId=acc", stepsBody("two"))
	require.Equal(t, 409, r.status)
	assert.Contains(t, r.body, "its init failed")
	s.pass(d, dockerTypes[2], succeeded)
	st := s.ended("s")
	assert.Equal(t, api.FailureImage, st.FailureKind)
	assert.Equal(t, api.Skipped, stepOf(t, st, "one").Status)
}

func TestAHeldStageThatIsAbortedStopsAllItsSteps(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.open(`,"steps":[{"id":"first"}]`)
	s.appendSteps("one", "two")
	tasks := s.tasks(d)
	require.Len(t, tasks, 3)
	for _, id := range []string{"first", "one"} {
		require.Equal(t, 200, s.acquire(d, tasks[id]).status)
	}
	st := s.change("abort")
	assert.Equal(t, api.Aborted, stepOf(t, st, "two").Status, "the delegate did not have it")
	assert.ElementsMatch(t, []string{tasks["first"], tasks["one"]}, s.poll(d).Aborted)
	for _, id := range []string{"first", "one"} {
		assert.Empty(t, s.poll(d).Events, "the cleanup follows all steps")
		require.Equal(t, 204, s.respond(d, tasks[id], succeeded))
	}
	s.pass(d, dockerTypes[2], succeeded)
	st = s.ended("s")
	assert.Equal(t, api.Aborted, st.Status)
	assert.Equal(t, api.FailureAborted, st.FailureKind)

	s.submit(`{"id":"idle","hold":{"lease_ms":60000}}`)
	s.pass(d, dockerTypes[0], succeeded)
	s.ok("POST", "/api/stages/idle/abort?accountId=acc", "", nil)
	s.pass(d, dockerTypes[2], succeeded)
	assert.Equal(t, api.Aborted, s.ended("idle").Status)
}

func TestTheTimeoutOfAHeldStageStopsAllItsSteps(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.open(`,"timeout_ms":20000`)
	s.appendSteps("one", "two")
	tasks := s.tasks(d)
	for _, id := range tasks {
		require.Equal(t, 200, s.acquire(d, id).status)
	}
	s.advanceUntil(20*time.Second, func() bool { return len(s.poll(d).Aborted) == 2 })
	for _, id := range tasks {
		require.Equal(t, 204, s.respond(d, id, succeeded))
	}
	s.pass(d, dockerTypes[2], succeeded)
	st := s.ended("s")
	assert.Equal(t, api.Timeout, st.Status)
	assert.Equal(t, api.FailureTimeout, st.FailureKind)
}

func TestAHeldStageEndsWithItsLostDelegate(t *testing.T) {
	t.Parallel()
	for name, ids := range map[string][]string{"without a step": nil, "with two steps": {"one", "two"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			d := s.open("")
			if ids != nil {
				s.appendSteps(ids...)
				require.Equal(t, 200, s.acquire(d, s.tasks(d)["one"]).status)
			}
			s.clock.Advance(50 * time.Second)
			s.change("renew")
			s.advanceUntil(10*time.Second, func() bool { return s.stage("s").Status.Ended() })
			st := s.stage("s")
			assert.Equal(t, api.Failure, st.Status)
			assert.Equal(t, api.FailureDelegateLost, st.FailureKind)
			assert.Contains(t, st.Error, "no heartbeat")
			for _, p := range st.Steps {
				assert.Equal(t, api.FailureDelegateLost, p.FailureKind)
			}
			s.beat(d)
			s.pass(d, dockerTypes[2], succeeded)
			assert.Equal(t, api.Success, s.stage("s").Cleanup.Status, "the delegate cleans up when it returns")
		})
	}
}

func TestAHeldStageGoesOnAtAnotherDelegateOfTheGroup(t *testing.T) {
	t.Parallel()
	s := start(t)
	a := s.registerInGroup("a")
	s.submit(`{"id":"s","hold":{"lease_ms":60000}}`)
	s.pass(a, initTask, succeeded)
	b := s.registerInGroup("b")
	s.ok("POST", "/api/agent/delegates/unregister?accountId=acc", `{"delegateId":"`+a+`"}`, nil)
	require.True(t, s.stage("s").Open)
	s.appendSteps("one")
	s.pass(b, executeTask, succeeded)

	// If a delegate is lost with one step, the others are stopped first.
	s.appendSteps("two", "three")
	tasks := s.tasks(b)
	require.Equal(t, 200, s.acquire(b, tasks["two"]).status)
	c := s.registerInGroup("c")
	s.ok("POST", "/api/agent/delegates/unregister?accountId=acc", `{"delegateId":"`+b+`"}`, nil)
	st := s.ended("s")
	assert.Equal(t, api.FailureDelegateLost, st.FailureKind)
	assert.Equal(t, api.Aborted, stepOf(t, st, "three").Status)
	s.pass(c, cleanupTask, succeeded)
}

func TestAnAbortedStepLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit(`{"id":"s","hold":{"lease_ms":60000}}`)
	s.appendSteps("early")
	s.change("steps/early/abort")
	d := s.register("d", dockerTypes)
	s.pass(d, dockerTypes[0], succeeded)
	assert.Empty(t, s.poll(d).Events, "a step that was aborted does not start")
	s.appendSteps("one", "two")
	tasks := s.tasks(d)
	for _, id := range tasks {
		require.Equal(t, 200, s.acquire(d, id).status)
	}
	s.change("steps/one/abort")
	s.change("steps/one/abort")
	assert.Equal(t, []string{tasks["one"]}, s.poll(d).Aborted)
	require.Equal(t, 204, s.respond(d, tasks["one"], succeeded))
	require.Equal(t, 204, s.respond(d, tasks["two"], succeeded))
	st := s.change("steps/two/abort")
	assert.True(t, st.Open)
	assert.Equal(t, api.Aborted, stepOf(t, st, "one").Status)
	assert.Equal(t, api.Success, stepOf(t, st, "two").Status)
	require.Equal(t, 404, s.call("POST", "/api/stages/s/steps/init/abort?accountId=acc", "").status)
	require.Equal(t, 404, s.call("POST", "/api/stages/x/steps/one/abort?accountId=acc", "").status)
}

func TestAnAbortedStepOfAnOrdinaryStageIsNotRunAgain(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", dockerTypes)
	s.submit(`{"id":"s","retry":{"max_attempts":3,"on":["failure","timeout","lost"]},
		"steps":[{"id":"one"},{"id":"two"},{"id":"three"},{"id":"last","run_on":"always"}]}`)
	s.pass(d, dockerTypes[0], succeeded)
	one := s.take(d, dockerTypes[1])
	s.change("steps/two/abort")
	require.Equal(t, 204, s.respond(d, one.ID, succeeded))
	s.pass(d, dockerTypes[1], succeeded) // last
	s.pass(d, dockerTypes[2], succeeded)
	st := s.ended("s")
	assert.Equal(t, api.Aborted, st.Status)
	assert.Equal(t, api.FailureAborted, st.FailureKind)
	for id, want := range map[string]api.Status{
		"one": api.Success, "two": api.Aborted, "three": api.Skipped, "last": api.Success,
	} {
		assert.Equal(t, want, stepOf(t, st, id).Status, id)
	}
}

func TestAHoldThatIsNotValidIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for body, text := range map[string]string{
		`{"hold":{}}`:                                                      "hold.lease_ms is 0; it may be 1000 to 86400000",
		`{"hold":{"lease_ms":86400001}}`:                                   "hold.lease_ms",
		`{"hold":{"lease_ms":1000,"x":1}}`:                                 "hold.x: unknown member",
		`{"hold":{"lease_ms":1000},"retry":{"max_attempts":2}}`:            "retry: a stage with a hold cannot run again",
		`{"hold":{"lease_ms":1000,"announced":[{"id":"a/../\u0001"}]}}`:    "hold.announced[0].id",
		`{"hold":{"lease_ms":1000,"announced":[{"data":{"imagee":"x"}}]}}`: `hold.announced[0].data.imagee`,
		`{"hold":{"lease_ms":1000},"steps":[{"id":"a"},{"id":"a"}]}`:       "steps[1].id",
	} {
		r := s.call("POST", "/api/stages?accountId=acc", body)
		assert.Equal(t, 400, r.status, body)
		assert.Contains(t, r.body, text, body)
	}
	r := s.call("PUT", "/api/schedules/x?accountId=acc", `{"cron":"@daily","stage":{"hold":{"lease_ms":1000}}}`)
	assert.Equal(t, 400, r.status)
	assert.Contains(t, r.body, "stage.hold")
}

func TestAnAppendThatIsNotValidIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.open("")
	for body, text := range map[string]string{
		`{}`:                                "steps is empty",
		`{"steps":[{}]}`:                    "steps[0].id is missing",
		`{"steps":[{"id":"."}]}`:            "steps[0].id",
		`{"steps":[{"id":"a"},{"id":"a"}]}`: "steps[1].id",
		`{"steps":[{"id":"a","run_on":"failure"}]}`:    "steps[0].run_on",
		`{"steps":[{"id":"a","run_on":"maybe"}]}`:      "steps[0].run_on",
		`{"steps":[{"id":"a","timeout_ms":-1}]}`:       "steps[0].timeout_ms",
		`{"steps":[{"id":"a","data":5}]}`:              "steps[0].data",
		`{"steps":[{"id":"a","data":{"comands":[]}}]}`: "did you mean",
		`{"step":[{"id":"a"}]}`:                        `did you mean \"steps\"`,
	} {
		r := s.call("POST", "/api/stages/s/steps?accountId=acc", body)
		assert.Equal(t, 400, r.status, body)
		assert.Contains(t, r.body, text, body)
	}
	assert.Empty(t, s.stage("s").Steps)
	require.Equal(t, 404, s.call("POST", "/api/stages/x/steps?accountId=acc", stepsBody("a")).status)
	require.Equal(t, 404, s.call("GET", "/api/stages/s/steps/x?accountId=acc", "").status)

	s.submit(`{"id":"plain"}`)
	for _, path := range []string{"steps", "finish", "renew"} {
		r := s.call("POST", "/api/stages/plain/"+path+"?accountId=acc", stepsBody("a"))
		require.Equal(t, 409, r.status, path)
		assert.Contains(t, r.body, "submitted without hold")
		require.Equal(t, 404, s.as(otherSecret, otherAccount).call("POST", "/api/stages/s/"+path+"?accountId=other", stepsBody("a")).status, path)
	}
}

func TestAnOpenStageHasAtMost10000Steps(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.open(`,"steps":[{"id":"first"}]`)
	ids := make([]string, 9_999)
	for i := range ids {
		ids[i] = fmt.Sprint("step-", i)
	}
	st := s.appendSteps(ids...)
	assert.Len(t, st.Steps, 10_000)
	r := s.call("POST", "/api/stages/s/steps?accountId=acc", stepsBody("more"))
	require.Equal(t, 400, r.status)
	assert.Contains(t, r.body, "10001 steps; it may have 10000")
	require.Equal(t, 200, s.call("POST", "/api/stages/s/steps?accountId=acc", stepsBody(ids[:3]...)).status)
}

func TestAppendedStepsCountForTheBudget(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.AccountBudget = manager.Budget{Bytes: 64 << 10} })
	d := s.open("")
	large := func(id string) string {
		return `{"steps":[{"id":"` + id + `","data":{"run":{"commands":["` + strings.Repeat("x", 40<<10) + `"]}}}]}`
	}
	const path = "/api/stages/s/steps?accountId=acc"
	s.refused("bytes", "POST", path, strings.Replace(large("one"), "x", strings.Repeat("x", 40<<10), 1))
	require.Equal(t, 202, s.call("POST", path, large("one")).status)
	s.refused("bytes", "POST", path, large("two"))
	require.Equal(t, 200, s.call("POST", path, large("one")).status, "it needs no more")
	s.change("finish")
	s.pass(d, dockerTypes[1], succeeded)
	s.pass(d, dockerTypes[2], succeeded)
	s.ended("s")
	s.submit(`{"id":"next","hold":{"lease_ms":60000}}`)
	require.Equal(t, 202, s.call("POST", "/api/stages/next/steps?accountId=acc", large("one")).status, "the end frees the budget")
}

func TestTheInitListsTheAnnouncedImages(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", dockerTypes)
	s.submit(`{"id":"s","hold":{"lease_ms":60000,"announced":[
		{"id":"later","data":{"image":"r.example/later:1","run":{"commands":["secret"]}}},{"id":"host"}]},
		"steps":[{"id":"first","data":{"image":"r.example/first:1"}}]}`)
	init := s.take(d, dockerTypes[0])
	assert.Contains(t, string(init.Data), `{"id":"first","run":{},"environment":{},"image":"r.example/first:1"}`)
	assert.Contains(t, string(init.Data), `{"id":"later","run":{},"environment":{},"image":"r.example/later:1"}`)
	assert.NotContains(t, string(init.Data), "secret")
	assert.Empty(t, s.stage("s").Steps[1:], "an announced step is not a step yet")
}

func TestEachChangeOfAnAppendedStepIsAnEvent(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit(`{"id":"s","hold":{"lease_ms":60000}}`)
	s.appendSteps("one", "two")
	d := s.register("d", dockerTypes)
	s.pass(d, dockerTypes[0], succeeded)
	tasks := s.tasks(d)
	require.Equal(t, 200, s.acquire(d, tasks["one"]).status)
	require.Equal(t, 204, s.respond(d, tasks["one"], `{"code":"OK","data":{"command_execution_status":"FAILURE","exit_code":1}}`))
	s.submit(`{"id":"t","hold":{"lease_ms":60000}}`)
	s.ok("POST", "/api/stages/t/steps?accountId=acc", stepsBody("never"), nil)
	s.ok("POST", "/api/stages/t/abort?accountId=acc", "", nil)
	got := []string{}
	for _, e := range s.m.Events(account, 0).Events {
		if e.Type == "step" && e.Step != "init" && e.Step != "cleanup" {
			got = append(got, strings.TrimSpace(fmt.Sprint(e.Step, " ", e.Status, " ", e.FailureKind)))
		}
	}
	assert.Equal(t, []string{"one QUEUED", "two QUEUED", "one RUNNING", "one FAILURE exit_code", "never QUEUED", "never SKIPPED"}, got)
}

func TestAStepIsShownWithoutItsSecretOutputs(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.open("")
	s.ok("POST", "/api/stages/s/steps?accountId=acc", `{"steps":[{"id":"one","data":{"outputs":[{"key":"T","value":"T","type":"SECRET"}]}}]}`, nil)
	s.pass(d, dockerTypes[1], `{"code":"OK","data":{"command_execution_status":"SUCCESS","output_vars":{"V":"1","T":"fake-secret"}}}`)
	r := s.call("GET", "/api/stages/s/steps/one?accountId=acc", "")
	require.Equal(t, 200, r.status)
	assert.NotContains(t, r.body, "fake-secret")
	p, err := s.m.Step(account, "s", "one")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"V": "1", "T": "[secret]"}, p.OutputVars)
}

func TestTheEndOfALeaseAlsoEndsAStageThatWaitsForADelegate(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit(`{"id":"s","hold":{"lease_ms":60000}}`)
	s.appendSteps("one")
	s.clock.Advance(40 * time.Second)
	s.appendSteps("two") // also a sign of the holder
	s.clock.Advance(40 * time.Second)
	require.Equal(t, api.Queued, s.stage("s").Status)
	s.advanceUntil(20*time.Second, func() bool { return s.stage("s").Status.Ended() })
	st := s.stage("s")
	assert.Equal(t, api.FailureLeaseEnded, st.FailureKind)
	assert.Equal(t, api.Skipped, st.Cleanup.Status)
	assert.Equal(t, api.Skipped, stepOf(t, st, "two").Status)
}
