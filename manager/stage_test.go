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
	"github.com/delegate-io/dlite/manager/queue"
)

const (
	initTask    = "CI_DOCKER_INITIALIZE_TASK"
	executeTask = "CI_DOCKER_EXECUTE_TASK"
	cleanupTask = "CI_DOCKER_CLEANUP_TASK"
	failure     = `{"code":"OK","data":{"command_execution_status":"FAILURE","error_message":"exit status 1","exit_code":1}}`
)

// SPEC T1: init, steps in their order, cleanup; PROTOCOL 3: what ties them
// together is filled in, and nothing else is touched.
func TestAStageRunsFromInitToCleanup(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", dockerTypes)
	st := s.submit(`{"id":"s1","name":"build","init":{"envs":{"A":"b"},"more":12345678901234567890},
		"steps":[{"id":"one","timeout_ms":7000,"data":{"run":{"commands":["make"]},"cpu_quota":12345678901234567890}},
		         {"data":{"id":"mine","timeout":9,"group_id":"g","network":"n","environment":{"E":"1"}}}],
		"cleanup":{"volumes":[]}}`)
	assert.Equal(t, manager.Queued, st.Status)
	assert.Equal(t, `waiting for the delegate "d" to take it`, st.Reason)

	got := s.take(id, initTask)
	assert.Contains(t, string(got.Data), `12345678901234567890`)
	assert.JSONEq(t, `{"envs":{"A":"b"},"more":12345678901234567890,"group_id":"s1","network":{"id":"s1"}}`, string(got.Data))
	assert.Equal(t, manager.Running, s.stage("s1").Status)
	assert.Equal(t, id, s.stage("s1").DelegateID)
	require.Equal(t, 204, s.respond(id, got.ID, succeeded))

	got = s.pass(id, executeTask, `{"code":"OK","data":{"command_execution_status":"SUCCESS","output_vars":{"K":"v"},
		"outputs":[{"key":"a","value":"b","type":"STRING"},{"key":"p","value":"fake-value","type":"SECRET"}]}}`)
	assert.Equal(t, int64(7000), got.Timeout)
	assert.Contains(t, string(got.Data), `12345678901234567890`)
	assert.JSONEq(t, `{"run":{"commands":["make"]},"cpu_quota":12345678901234567890,"id":"one","name":"one","environment":{},
		"group_id":"s1","network":"s1"}`, string(got.Data))
	got = s.pass(id, executeTask, succeeded)
	assert.Equal(t, int64(9000), got.Timeout, "the payload's own, in seconds")
	assert.JSONEq(t, `{"id":"mine","name":"step2","timeout":9,"group_id":"g","network":"n","environment":{"E":"1"}}`, string(got.Data))
	assert.Equal(t, manager.Running, s.stage("s1").Status)
	got = s.pass(id, cleanupTask, succeeded)
	assert.JSONEq(t, `{"volumes":[],"group_id":"s1","network":"s1"}`, string(got.Data))

	st = s.ended("s1")
	assert.Equal(t, manager.Success, st.Status)
	assert.Equal(t, map[string]string{"K": "v"}, st.Steps[0].OutputVars)
	assert.Equal(t, "b", st.Steps[0].Outputs[0].Value)
	assert.NotContains(t, asJSON(t, st), "fake-value", "SPEC S3: a secret output is not shown")
	for _, p := range []manager.StepState{st.Init, st.Steps[0], st.Steps[1], st.Cleanup} {
		assert.Equal(t, manager.Success, p.Status)
		assert.False(t, p.EndedAt.IsZero())
	}
	assert.Equal(t, 0, s.m.Delegates(account)[0].Stages)
}

// A delegate that has only the local_* types is given those.
func TestTaskTypesFollowTheDelegate(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", []string{"local_init", "local_execute", "local_cleanup", "CI_DOCKER_INITIALIZE_TASK"})
	st := s.submit(`{"steps":[{}]}`)
	s.pass(id, "local_init", succeeded)
	s.pass(id, "local_execute", succeeded)
	s.pass(id, "local_cleanup", succeeded)
	assert.Equal(t, manager.Success, s.ended(st.ID).Status)
}

// After a failure the rest is skipped, unless run_on says otherwise; the cleanup
// comes always.
func TestRunOnDecidesAfterAFailure(t *testing.T) {
	t.Parallel()
	steps := `{"steps":[{"id":"a"},{"id":"b","run_on":"failure"},{"id":"c"},{"id":"d","run_on":"always"}]}`
	for name, c := range map[string]struct {
		answers []string // to init, the steps that run, and the cleanup
		stage   manager.Status
		steps   string
		message string
	}{
		"all well": {[]string{succeeded, succeeded, succeeded, succeeded, succeeded},
			manager.Success, "SUCCESS SKIPPED SUCCESS SUCCESS", ""},
		"a fails": {[]string{succeeded, failure, succeeded, succeeded, succeeded},
			manager.Failure, "FAILURE SUCCESS SKIPPED SUCCESS", `step "a": exit status 1`},
		"c fails": {[]string{succeeded, succeeded, failure, succeeded, succeeded},
			manager.Failure, "SUCCESS SKIPPED FAILURE SUCCESS", `step "c": exit status 1`},
		"a times out": {[]string{succeeded, `{"code":"OK","data":{"command_execution_status":"TIMEOUT"}}`, failure, succeeded, succeeded},
			manager.Timeout, "TIMEOUT FAILURE SKIPPED SUCCESS", `step "a": the delegate answered TIMEOUT`},
		"init fails": {[]string{failure, succeeded},
			manager.Failure, "SKIPPED SKIPPED SKIPPED SKIPPED", "init: exit status 1"},
		"cleanup fails": {[]string{succeeded, succeeded, succeeded, succeeded, failure},
			manager.Success, "SUCCESS SKIPPED SUCCESS SUCCESS", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			id := s.register("d", dockerTypes)
			st := s.submit(steps)
			for i, a := range c.answers {
				kind := executeTask
				switch i {
				case 0:
					kind = initTask
				case len(c.answers) - 1:
					kind = cleanupTask
				}
				s.pass(id, kind, a)
			}
			st = s.ended(st.ID)
			var got []string
			for _, p := range st.Steps {
				got = append(got, string(p.Status))
			}
			assert.Equal(t, c.stage, st.Status)
			assert.Equal(t, c.steps, strings.Join(got, " "))
			assert.Equal(t, c.message, st.Error)
			assert.Empty(t, s.poll(id).Events)
		})
	}
}

// SPEC Q1, Q2, Q5: capacity bounds the stages, the rest queues, HIGH before
// NORMAL, then by age, and says why.
func TestStagesQueueForASlot(t *testing.T) {
	t.Parallel()
	s := start(t)
	assert.Equal(t, "no delegate is registered", s.submit(`{"id":"a"}`).Reason)
	assert.Equal(t, `no delegate has the tags "gpu"`, func() string {
		s.register("other", []string{"custom"})
		return s.submit(`{"id":"gpu","selectors":["gpu"]}`).Reason
	}())
	id := s.register("d", dockerTypes)
	s.ok("POST", "/api/agent/delegates/register-delegate-capacity/"+id+"?accountId=acc", `{"maximumNumberOfBuilds":1}`, nil)
	s.submit(`{"id":"b"}`)
	s.submit(`{"id":"c"}`)
	s.submit(`{"id":"h","priority":"HIGH"}`)
	assert.Equal(t, "no delegate with the right tags supports CI_DOCKER_INITIALIZE_TASK, CI_DOCKER_EXECUTE_TASK, "+
		"CI_DOCKER_CLEANUP_TASK; or local_init, local_execute, local_cleanup", s.submit(`{"id":"o","selectors":["other"]}`).Reason)
	for place, id := range []string{"h", "gpu", "b", "c", "o"} {
		assert.Equal(t, place+1, s.stage(id).Place, id)
	}
	var all struct{ Stages []manager.Stage }
	s.ok("GET", "/api/stages?accountId=acc", "", &all)
	var ids []string
	for _, st := range all.Stages {
		ids = append(ids, fmt.Sprintf("%s%d", st.ID, st.Place))
	}
	assert.Equal(t, []string{"a0", "gpu2", "b3", "c4", "h1", "o5"}, ids)
	assert.Equal(t, "all 1 stage slots of the one delegate that could take it are in use", s.stage("h").Reason)
	for _, next := range []string{"a", "h", "b", "c"} {
		got := s.pass(id, initTask, succeeded)
		assert.Contains(t, string(got.Data), `"group_id":"`+next+`"`)
		s.pass(id, cleanupTask, succeeded)
		assert.Equal(t, manager.Success, s.ended(next).Status)
	}
}

// Submitting is idempotent under an id, and refuses another request under it.
func TestSubmittingTwice(t *testing.T) {
	t.Parallel()
	s := start(t)
	body := `{"id":"s1","steps":[{"data":{"a":1,"b":2}}]}`
	assert.Equal(t, 202, s.call("POST", "/api/stages?accountId=acc", body).status)
	assert.Equal(t, 200, s.call("POST", "/api/stages?accountId=acc", `{"steps":[{"data":{"b":2, "a":1}}],"id":"s1"}`).status)
	assert.Equal(t, 409, s.call("POST", "/api/stages?accountId=acc", `{"id":"s1","steps":[{"data":{"a":1,"b":3}}]}`).status)
	assert.Equal(t, 409, s.call("POST", "/api/tasks?accountId=acc", `{"id":"s1","type":"custom"}`).status)
	assert.Equal(t, 202, s.call("POST", "/api/tasks?accountId=acc", `{"id":"t1","type":"custom","data":{}}`).status)
	assert.Equal(t, 200, s.call("POST", "/api/tasks?accountId=acc", `{"id":"t1","data":{},"type":"custom"}`).status)
	assert.Equal(t, 409, s.call("POST", "/api/tasks?accountId=acc", `{"id":"t1","type":"custom","data":[]}`).status)
	assert.Equal(t, 409, s.call("POST", "/api/stages?accountId=acc", `{"id":"t1"}`).status)
	assert.Len(t, s.m.Stages(account), 1)
}

func TestSenselessRequestsAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, body := range []string{
		`{"infra":"moon"}`, `{"priority":"URGENT"}`, `{"timeout_ms":-1}`, `{"queue_timeout_ms":-1}`, `{"init":[]}`,
		`{"init":{"network":7}}`, `{"init":{"group_id":7}}`, `{"init":{"network":{"id":7}}}`, `{"cleanup":"x"}`,
		`{"steps":[{"data":[]}]}`, `{"steps":[{"id":"a"},{"id":"a"}]}`, `{"steps":[{"run_on":"never"}]}`,
		`{"steps":[{"timeout_ms":-1}]}`, `{"id":"` + strings.Repeat("x", 300) + `"}`,
	} {
		r := s.call("POST", "/api/stages?accountId=acc", body)
		assert.Equal(t, 400, r.status, body)
		assert.Contains(t, r.body, "invalid request: ", body)
	}
	for _, body := range []string{`{}`, `null`, `{"type":"x","timeout_ms":-1}`, `{"type":"x","priority":"LOW"}`} {
		assert.Equal(t, 400, s.call("POST", "/api/tasks?accountId=acc", body).status, body)
	}
	_, err := s.m.SubmitStage(t.Context(), "unheard-of", manager.StageRequest{})
	require.ErrorIs(t, err, manager.ErrInvalid)
	_, err = s.m.SubmitTask(t.Context(), account, manager.TaskRequest{})
	require.ErrorIs(t, err, manager.ErrInvalid)
	_, err = manager.New(manager.Config{})
	require.ErrorContains(t, err, "Config.Accounts")
	_, err = manager.New(manager.Config{Accounts: map[string]string{"a": "short"}})
	require.ErrorContains(t, err, `account "a"`)
	_, err = manager.New(manager.Config{Accounts: map[string]string{"": fakeSecret}})
	require.Error(t, err)
}

// SPEC Q6: a queued stage is aborted at once, a running one after its step has
// been stopped and its cleanup is done.
func TestAbortingAStage(t *testing.T) {
	t.Parallel()
	s := start(t)
	st := s.submit(`{"id":"queued"}`)
	s.ok("POST", "/api/stages/queued/abort?accountId=acc", "", &st)
	assert.Equal(t, manager.Aborted, st.Status)
	assert.Equal(t, manager.Skipped, st.Cleanup.Status)

	id := s.register("d", dockerTypes)
	assert.Empty(t, s.poll(id).Events)
	s.submit(`{"id":"s1","steps":[{"id":"a"},{"id":"b","run_on":"always"}]}`)
	s.pass(id, initTask, succeeded)
	step := s.take(id, executeTask)
	s.ok("POST", "/api/stages/s1/abort?accountId=acc", "", &st)
	assert.Equal(t, manager.Running, st.Status)
	assert.Equal(t, []string{step.ID}, s.poll(id).Aborted)
	assert.Equal(t, []string{step.ID}, s.poll(id).Aborted, "until it is answered")
	assert.Equal(t, 204, s.respond(id, step.ID, failure))
	assert.Empty(t, s.poll(id).Aborted)
	s.pass(id, cleanupTask, succeeded)
	st = s.ended("s1")
	assert.Equal(t, manager.Aborted, st.Status)
	assert.Equal(t, "the stage was aborted", st.Error)
	assert.Equal(t, manager.Aborted, st.Steps[0].Status)
	assert.Equal(t, manager.Skipped, st.Steps[1].Status)
	s.ok("POST", "/api/stages/s1/abort?accountId=acc", "", &st)
	assert.Equal(t, manager.Aborted, st.Status, "again changes nothing")
}

// A step that does not react to its abort does not keep the stage: after the
// grace comes the cleanup, and the late answer changes nothing.
func TestAnAbortThatIsIgnored(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.AbortGrace = 5 * time.Second })
	id := s.register("d", dockerTypes)
	s.submit(`{"id":"s1","steps":[{}]}`)
	s.pass(id, initTask, succeeded)
	step := s.take(id, executeTask)
	s.ok("POST", "/api/stages/s1/abort?accountId=acc", "", nil)
	s.settled(5*time.Second, func() bool { return len(s.poll(id).Events) == 1 })
	assert.Equal(t, []string{step.ID}, s.poll(id).Aborted)
	assert.Equal(t, 204, s.respond(id, step.ID, succeeded))
	assert.Empty(t, s.poll(id).Aborted)
	s.pass(id, cleanupTask, succeeded)
	assert.Equal(t, manager.Aborted, s.ended("s1").Status)
}

// PROTOCOL 1: the manager has its own time-out for every task, and for whole
// stages (SPEC Q6).
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
	assert.Equal(t, manager.Timeout, st.Status)
	assert.Equal(t, "init: no delegate took it within 1s: no delegate is registered", st.Error)
	assert.Equal(t, manager.Timeout, s.task("t1").Status)

	id := s.register("d", dockerTypes)
	s.submit(`{"id":"step","steps":[{"timeout_ms":1000}]}`)
	s.pass(id, initTask, succeeded)
	step := s.take(id, executeTask)
	s.settled(2*time.Second, func() bool { return s.stage("step").Steps[0].Status.Ended() })
	assert.Equal(t, manager.Timeout, s.stage("step").Steps[0].Status)
	assert.Equal(t, []string{step.ID}, s.poll(id).Aborted, "it is to stop")
	s.pass(id, cleanupTask, succeeded)
	assert.Equal(t, manager.Timeout, s.ended("step").Status)
	assert.Equal(t, 204, s.respond(id, step.ID, succeeded), "late")
	assert.Equal(t, manager.Timeout, s.stage("step").Status)

	s.submit(`{"id":"whole","timeout_ms":1000,"steps":[{"run_on":"always"},{"run_on":"always"}]}`)
	s.pass(id, initTask, succeeded)
	step = s.take(id, executeTask)
	s.settled(time.Second, func() bool { return len(s.poll(id).Aborted) == 1 })
	require.Equal(t, 204, s.respond(id, step.ID, failure))
	s.take(id, cleanupTask)
	s.clock.Advance(11 * time.Second) // the cleanup is never answered
	st = s.ended("whole")
	assert.Equal(t, manager.Timeout, st.Status)
	assert.Equal(t, "the stage ran longer than its time-out of 1s", st.Error)
	assert.Equal(t, manager.Skipped, st.Steps[1].Status)
	assert.Equal(t, manager.Timeout, st.Cleanup.Status)
	assert.Equal(t, 0, s.m.Delegates(account)[0].Stages, "PITFALLS: capacity does not leak")

	s.submit(`{"id":"dropped","steps":[{"timeout_ms":1000}]}`)
	s.pass(id, initTask, succeeded)
	s.settled(2*time.Second, func() bool { return s.stage("dropped").Steps[0].Status.Ended() })
	assert.Equal(t, `the delegate "d" did not take the task within its time-out of 1s`, s.stage("dropped").Steps[0].Error)
}

// PITFALLS "An acquire that is lost leaves the task assigned for ever"; SPEC Q4:
// an assignment that is not acquired in time goes back and to another delegate.
func TestAnOfferThatIsIgnoredGoesToAnotherDelegate(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.AcquireTimeout = 5 * time.Second })
	deaf, other := s.register("deaf", dockerTypes), s.register("other", dockerTypes)
	s.submit(`{"id":"s1"}`)
	task := s.pending(deaf, initTask)
	s.settled(5*time.Second, func() bool { return len(s.poll(other).Events) == 1 })
	assert.Equal(t, 204, s.acquire(deaf, task).status)
	s.pass(other, initTask, succeeded)
	s.pass(other, cleanupTask, succeeded)
	assert.Equal(t, manager.Success, s.ended("s1").Status)
}

// SPEC Q4, PITFALLS "The assignment of a delegate that died is never given
// back": what it had taken fails, what it had not goes to others; when it comes
// back it is told what to stop and what to clean up.
func TestALostDelegate(t *testing.T) {
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
	assert.Equal(t, manager.Failure, st.Status)
	assert.Contains(t, st.Error, `step "a": the delegate "dying" is lost: it has sent no heartbeat since`)
	assert.Equal(t, manager.Skipped, st.Steps[1].Status)
	assert.Equal(t, manager.Failure, s.task("t1").Status)
	assert.Equal(t, queue.Gone, s.m.Delegates(account)[0].State)
	assert.Equal(t, 0, s.m.Delegates(account)[0].Stages)
	s.pass(healthy, initTask, succeeded)
	s.pass(healthy, cleanupTask, succeeded)
	assert.Equal(t, manager.Success, s.ended("offered").Status)

	require.Equal(t, 200, s.beat(dying))
	assert.Equal(t, queue.Alive, s.m.Delegates(account)[0].State)
	assert.ElementsMatch(t, []string{step.ID, "t1"}, s.poll(dying).Aborted)
	assert.Equal(t, 204, s.respond(dying, step.ID, succeeded), "late")
	assert.Equal(t, []string{"t1"}, s.poll(dying).Aborted)
	s.pass(dying, cleanupTask, succeeded)
	st = s.stage("taken")
	assert.Equal(t, manager.Failure, st.Status)
	assert.Equal(t, manager.Success, st.Cleanup.Status)
}

// What a stage has come to is settled before its cleanup: neither an abort nor
// the loss of the delegate changes it then.
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
	assert.Equal(t, manager.Success, st.Status)
	assert.Empty(t, st.Error)
	assert.Equal(t, manager.Queued, st.Cleanup.Status, "it waits for the delegate's return")
	require.Equal(t, 200, s.beat(id))
	s.pass(id, cleanupTask, succeeded)
	assert.Equal(t, manager.Success, s.stage("s1").Cleanup.Status)
}

// A delegate that drains gets no new stages, and finishes its own.
func TestADrainingDelegateFinishesItsStages(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", dockerTypes)
	s.submit(`{"id":"s1","steps":[{}]}`)
	s.pass(id, initTask, succeeded)
	s.submit(`{"id":"s2"}`)
	s.ok("POST", "/api/agent/delegates/heartbeat-with-polling?accountId=acc", `{"delegateId":"`+id+`","draining":true}`, nil)
	assert.Equal(t, queue.Draining, s.m.Delegates(account)[0].State)
	assert.Equal(t, "every delegate that could take it is lost or draining", s.stage("s2").Reason)
	s.pass(id, executeTask, succeeded)
	s.pass(id, cleanupTask, succeeded)
	assert.Equal(t, manager.Success, s.ended("s1").Status)
	assert.Empty(t, s.poll(id).Events)
	s.ok("POST", "/api/agent/delegates/unregister?accountId=acc", `{"delegateId":"`+id+`"}`, nil)
	next := s.register("next", dockerTypes)
	s.take(next, initTask)
}

// A delegate that unregisters in the middle of a stage ends it: nobody else can.
func TestUnregisteringEndsWhatRuns(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", dockerTypes)
	s.submit(`{"id":"s1","steps":[{}]}`)
	s.pass(id, initTask, succeeded)
	step := s.take(id, executeTask)
	s.ok("POST", "/api/agent/delegates/unregister?accountId=acc", `{"delegateId":"`+id+`"}`, nil)
	st := s.ended("s1")
	assert.Equal(t, manager.Failure, st.Status)
	assert.Equal(t, `step "step1": the delegate "d" has unregistered`, st.Error)
	assert.Equal(t, manager.Skipped, st.Cleanup.Status)
	assert.Equal(t, 204, s.respond(id, step.ID, succeeded), "late, and it may")
}

// Memory is bounded: what has ended is forgotten.
func TestEndedThingsAreForgotten(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.Retention, c.ForgetLost, c.MaxFinished = time.Minute, 10*time.Minute, 2 })
	for _, id := range []string{"a", "b", "c"} {
		s.submit(`{"id":"` + id + `"}`)
		s.ok("POST", "/api/stages/"+id+"/abort?accountId=acc", "", nil)
	}
	assert.Equal(t, 404, s.call("GET", "/api/stages/a?accountId=acc", "").status, "the newest two are kept")
	assert.Equal(t, 200, s.call("GET", "/api/stages/b?accountId=acc", "").status)
	s.settled(time.Minute, func() bool { return len(s.m.Stages(account)) == 0 })
	s.register("d", nil)
	s.settled(time.Minute, func() bool { return s.m.Delegates(account)[0].State == queue.Gone })
	s.settled(10*time.Minute, func() bool { return len(s.m.Delegates(account)) == 0 })
}

func TestTheDelegatesAreListed(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("mac-1", dockerTypes, "macOS")
	s.ok("POST", "/api/agent/delegates/register-delegate-capacity/"+id+"?accountId=acc", `{"maximumNumberOfBuilds":3}`, nil)
	s.submit(`{"selectors":["MACOS"," mac-1 "]}`)
	s.take(id, initTask)
	var got struct{ Delegates []json.RawMessage }
	s.ok("GET", "/api/delegates?accountId=acc", "", &got)
	require.Len(t, got.Delegates, 1)
	assert.JSONEq(t, `{"id":"`+id+`","name":"mac-1","state":"ALIVE","tags":["macOS"],"task_types":`+asJSON(t, dockerTypes)+`,
		"max_stages":3,"stages":1,"running":1,"registered_at":"2023-11-14T22:13:20Z","last_heartbeat":"2023-11-14T22:13:20Z"}`,
		string(got.Delegates[0]))
}
