package manager_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

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
