package manager_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// Rule Q6: the abort ends a queued stage at once. A running stage ends after its
// step has been stopped and its cleanup has run.
func TestAbortingAStage(t *testing.T) {
	t.Parallel()
	s := start(t)
	st := s.submit(`{"id":"queued"}`)
	s.ok("POST", "/api/stages/queued/abort?accountId=acc", "", &st)
	assert.Equal(t, api.Aborted, st.Status)
	assert.Equal(t, api.Skipped, st.Cleanup.Status)

	id := s.register("d", dockerTypes)
	assert.Empty(t, s.poll(id).Events)
	s.submit(`{"id":"s1","steps":[{"id":"a"},{"id":"b","run_on":"always"}]}`)
	s.pass(id, initTask, succeeded)
	step := s.take(id, executeTask)
	s.ok("POST", "/api/stages/s1/abort?accountId=acc", "", &st)
	assert.Equal(t, api.Running, st.Status)
	assert.Equal(t, []string{step.ID}, s.poll(id).Aborted)
	assert.Equal(t, []string{step.ID}, s.poll(id).Aborted, "it runs until it is answered")
	assert.Equal(t, 204, s.respond(id, step.ID, failure))
	assert.Empty(t, s.poll(id).Aborted)
	s.pass(id, cleanupTask, succeeded)
	st = s.ended("s1")
	assert.Equal(t, api.Aborted, st.Status)
	assert.Equal(t, "the stage was aborted", st.Error)
	assert.Equal(t, api.Aborted, st.Steps[0].Status)
	assert.Equal(t, api.Skipped, st.Steps[1].Status)
	s.ok("POST", "/api/stages/s1/abort?accountId=acc", "", &st)
	assert.Equal(t, api.Aborted, st.Status, "a second abort changes nothing")
}

// A step that ignores its abort does not block the stage: the cleanup runs after the
// grace, and the late answer changes nothing.
func TestAStepThatIgnoresItsAbort(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.AbortGrace = 5 * time.Second })
	id := s.register("d", dockerTypes)
	s.submit(`{"id":"s1","steps":[{}]}`)
	s.pass(id, initTask, succeeded)
	step := s.take(id, executeTask)
	s.ok("POST", "/api/stages/s1/abort?accountId=acc", "", nil)
	s.advanceUntil(5*time.Second, func() bool { return len(s.poll(id).Events) == 1 })
	assert.Equal(t, []string{step.ID}, s.poll(id).Aborted)
	assert.Equal(t, 204, s.respond(id, step.ID, succeeded))
	assert.Empty(t, s.poll(id).Aborted)
	s.pass(id, cleanupTask, succeeded)
	assert.Equal(t, api.Aborted, s.ended("s1").Status)
}

// A delegate that polls without wait does not learn of an abort: its cleanup follows at
// once. If the delegate is replaced by one that learns of it, the grace applies again.
func TestTheCleanupOfADelegateThatDoesNotLearnOfAbortsFollowsAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", dockerTypes)
	foreign := func() (l list) {
		s.ok("GET", "/api/agent/delegates/"+id+"/task-events?accountId=acc", "", &l)
		return l
	}
	s.submit(`{"id":"s1","steps":[{}]}`)
	s.pass(id, initTask, succeeded)
	step := foreign().Events[0].TaskID
	require.Equal(t, 200, s.acquire(id, step).status)
	s.ok("POST", "/api/stages/s1/abort?accountId=acc", "", nil)
	l := foreign()
	require.Len(t, l.Events, 1)
	assert.Equal(t, cleanupTask, l.Events[0].TaskType)
	assert.Equal(t, 204, s.respond(id, step, succeeded), "late")
	require.Equal(t, 200, s.acquire(id, l.Events[0].TaskID).status)
	assert.Equal(t, 204, s.respond(id, l.Events[0].TaskID, succeeded))
	assert.Equal(t, api.Aborted, s.ended("s1").Status)

	s.submit(`{"id":"s2","steps":[{}]}`)
	s.pass(id, initTask, succeeded) // polls with wait
	s.take(id, executeTask)
	s.ok("POST", "/api/stages/s2/abort?accountId=acc", "", nil)
	assert.Empty(t, s.poll(id).Events)
}

// The manager has its own time-out for every task and for whole stages (rule Q6).
func TestTimeouts(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) {
		c.AnswerGrace = time.Second
		c.HeartbeatTimeout = 100 * time.Hour
		c.CleanupTimeout = 10 * time.Second
	})
	s.submit(`{"id":"nobody","queue_timeout_ms":1000}`)
	s.ok("POST", "/api/tasks?accountId=acc", `{"id":"t1","type":"custom","timeout_ms":1000}`, nil)
	s.clock.Advance(time.Second)
	st := s.ended("nobody")
	assert.Equal(t, api.Timeout, st.Status)
	assert.Equal(t, "init: no delegate took it within 1s: no delegate is registered: start one", st.Error)
	assert.Equal(t, api.Timeout, s.task("t1").Status)

	id := s.register("d", dockerTypes)
	s.submit(`{"id":"step","steps":[{"timeout_ms":1000}]}`)
	s.pass(id, initTask, succeeded)
	step := s.take(id, executeTask)
	s.advanceUntil(2*time.Second, func() bool { return s.stage("step").Steps[0].Status.Ended() })
	assert.Equal(t, api.Timeout, s.stage("step").Steps[0].Status)
	assert.Equal(t, []string{step.ID}, s.poll(id).Aborted, "the poll lists it as aborted")
	s.pass(id, cleanupTask, succeeded)
	assert.Equal(t, api.Timeout, s.ended("step").Status)
	assert.Equal(t, 204, s.respond(id, step.ID, succeeded), "late")
	assert.Equal(t, api.Timeout, s.stage("step").Status)

	s.submit(`{"id":"whole","timeout_ms":1000,"steps":[{"run_on":"always"},{"run_on":"always"}]}`)
	s.pass(id, initTask, succeeded)
	step = s.take(id, executeTask)
	s.advanceUntil(time.Second, func() bool { return len(s.poll(id).Aborted) == 1 })
	require.Equal(t, 204, s.respond(id, step.ID, failure))
	s.take(id, cleanupTask)
	s.clock.Advance(11 * time.Second) // the cleanup is never answered
	st = s.ended("whole")
	assert.Equal(t, api.Timeout, st.Status)
	assert.Equal(t, "the stage ran longer than its time-out of 1s", st.Error)
	assert.Equal(t, api.Skipped, st.Steps[1].Status)
	assert.Equal(t, api.Timeout, st.Cleanup.Status)
	assert.Equal(t, 0, s.m.Delegates(account)[0].Stages, "the slot is free")

	s.submit(`{"id":"dropped","steps":[{"timeout_ms":1000}]}`)
	s.pass(id, initTask, succeeded)
	s.advanceUntil(2*time.Second, func() bool { return s.stage("dropped").Steps[0].Status.Ended() })
	assert.Equal(t, `the delegate "d" did not take the task within its time-out of 1s`, s.stage("dropped").Steps[0].Error)
}

// Rule Q4: an offer that is not acquired in time, for example because the acquire
// was lost, goes to another delegate.
func TestAnOfferThatIsIgnoredGoesToAnotherDelegate(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.AcquireTimeout = 5 * time.Second })
	deaf, other := s.register("deaf", dockerTypes), s.register("other", dockerTypes)
	s.submit(`{"id":"s1"}`)
	task := s.pending(deaf, initTask)
	s.advanceUntil(5*time.Second, func() bool { return len(s.poll(other).Events) == 1 })
	assert.Equal(t, 204, s.acquire(deaf, task).status)
	s.pass(other, initTask, succeeded)
	s.pass(other, cleanupTask, succeeded)
	assert.Equal(t, api.Success, s.ended("s1").Status)
}

// Rule Q4: stages that a lost delegate had acquired fail, its offers go to other
// delegates. When it returns, its poll lists the tasks to abort and the cleanups.
func TestStagesOfALostDelegateFail(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.AcquireTimeout = time.Hour })
	types := append([]string{"custom"}, dockerTypes...)
	dying := s.register("dying", types)
	s.submit(`{"id":"taken","steps":[{"id":"a"},{"id":"b","run_on":"always"}]}`)
	s.pass(dying, initTask, succeeded)
	step := s.take(dying, executeTask)
	s.ok("POST", "/api/tasks?accountId=acc", `{"id":"t1","type":"custom"}`, nil)
	require.Equal(t, 200, s.acquire(dying, "t1").status)
	s.submit(`{"id":"offered"}`)
	s.clock.Advance(59 * time.Second)
	healthy := s.register("healthy", types)
	require.Len(t, s.poll(dying).Events, 1)

	s.clock.Advance(time.Second)
	st := s.ended("taken")
	assert.Equal(t, api.Failure, st.Status)
	assert.Contains(t, st.Error, `step "a": the delegate "dying" is lost: it has sent no heartbeat since`)
	assert.Equal(t, api.Skipped, st.Steps[1].Status)
	assert.Equal(t, api.Failure, s.task("t1").Status)
	assert.Equal(t, "LOST", s.m.Delegates(account)[0].State)
	assert.Equal(t, 0, s.m.Delegates(account)[0].Stages)
	s.pass(healthy, initTask, succeeded)
	s.pass(healthy, cleanupTask, succeeded)
	assert.Equal(t, api.Success, s.ended("offered").Status)

	require.Equal(t, 200, s.beat(dying))
	assert.Equal(t, "ALIVE", s.m.Delegates(account)[0].State)
	assert.ElementsMatch(t, []string{step.ID, "t1"}, s.poll(dying).Aborted)
	assert.Equal(t, 204, s.respond(dying, step.ID, succeeded), "late")
	assert.Equal(t, []string{"t1"}, s.poll(dying).Aborted)
	s.pass(dying, cleanupTask, succeeded)
	st = s.stage("taken")
	assert.Equal(t, api.Failure, st.Status)
	assert.Equal(t, api.Success, st.Cleanup.Status)
}

// The status of a stage is final before its cleanup. Neither an abort nor the loss
// of the delegate changes it then.
func TestACleanupDoesNotChangeTheOutcome(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", dockerTypes)
	s.submit(`{"id":"s1","steps":[{}]}`)
	s.pass(id, initTask, succeeded)
	s.pass(id, executeTask, succeeded)
	s.take(id, cleanupTask)
	s.ok("POST", "/api/stages/s1/abort?accountId=acc", "", nil)
	assert.Empty(t, s.poll(id).Aborted)
	s.clock.Advance(time.Minute)
	st := s.ended("s1")
	assert.Equal(t, api.Success, st.Status)
	assert.Empty(t, st.Error)
	assert.Equal(t, api.Queued, st.Cleanup.Status, "it waits for the delegate's return")
	require.Equal(t, 200, s.beat(id))
	s.pass(id, cleanupTask, succeeded)
	assert.Equal(t, api.Success, s.stage("s1").Cleanup.Status)
}

// A draining delegate gets no new stages and finishes its own.
func TestADrainingDelegateFinishesItsStages(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", dockerTypes)
	s.submit(`{"id":"s1","steps":[{}]}`)
	s.pass(id, initTask, succeeded)
	s.submit(`{"id":"s2"}`)
	s.ok("POST", "/api/agent/delegates/heartbeat-with-polling?accountId=acc", `{"delegateId":"`+id+`","draining":true}`, nil)
	assert.Equal(t, "DRAINING", s.m.Delegates(account)[0].State)
	assert.Equal(t, "every delegate that could take it is lost or draining: bring one back, or start another", s.stage("s2").Reason)
	s.pass(id, executeTask, succeeded)
	s.pass(id, cleanupTask, succeeded)
	assert.Equal(t, api.Success, s.ended("s1").Status)
	assert.Empty(t, s.poll(id).Events)
	s.ok("POST", "/api/agent/delegates/unregister?accountId=acc", `{"delegateId":"`+id+`"}`, nil)
	next := s.register("next", dockerTypes)
	s.take(next, initTask)
}

// A delegate that unregisters in the middle of a stage ends the stage, because no
// other delegate can continue it.
func TestUnregisteringEndsRunningStages(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", dockerTypes)
	s.submit(`{"id":"s1","steps":[{}]}`)
	s.pass(id, initTask, succeeded)
	step := s.take(id, executeTask)
	s.ok("POST", "/api/agent/delegates/unregister?accountId=acc", `{"delegateId":"`+id+`"}`, nil)
	st := s.ended("s1")
	assert.Equal(t, api.Failure, st.Status)
	assert.Equal(t, `step "step1": the delegate "d" has unregistered`, st.Error)
	assert.Equal(t, api.Skipped, st.Cleanup.Status)
	assert.Equal(t, 204, s.respond(id, step.ID, succeeded), "a late answer is accepted")
}

// The error names the step once, also if the delegate's message names it.
func TestTheErrorNamesTheFailedStepOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", dockerTypes)
	for stage, message := range map[string]string{"named": `step \"a\": no such image`, "unnamed": "no such image"} {
		s.submit(`{"id":"` + stage + `","steps":[{"id":"a"}]}`)
		s.pass(id, initTask, succeeded)
		s.pass(id, executeTask, `{"code":"OK","data":{"command_execution_status":"FAILURE","error_message":"`+message+`"}}`)
		s.pass(id, cleanupTask, succeeded)
		assert.Equal(t, `step "a": no such image`, s.ended(stage).Error)
	}
}
