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

const (
	initTask    = "CI_DOCKER_INITIALIZE_TASK"
	executeTask = "CI_DOCKER_EXECUTE_TASK"
	cleanupTask = "CI_DOCKER_CLEANUP_TASK"
	failure     = `{"code":"OK","data":{"command_execution_status":"FAILURE","error_message":"exit status 1","exit_code":1}}`
)

// Rule T1: init, steps in order, cleanup. The manager fills in the ids that connect
// the payloads and changes nothing else in them.
func TestAStageRunsFromInitToCleanup(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", dockerTypes)
	st := s.submit(`{"id":"s1","name":"build","init":{"envs":{"A":"b"},"more":12345678901234567890},
		"steps":[{"id":"one","timeout_ms":7000,"data":{"run":{"commands":["make"]},"cpu_quota":12345678901234567890}},
		         {"data":{"id":"mine","timeout":9,"group_id":"g","network":"n","environment":{"E":"1"}}}],
		"cleanup":{"volumes":[]}}`)
	assert.Equal(t, api.Queued, st.Status)
	assert.Equal(t, `waiting for the delegate "d" to take it`, st.Reason)

	got := s.take(id, initTask)
	assert.Contains(t, string(got.Data), `12345678901234567890`)
	assert.JSONEq(t, `{"envs":{"A":"b"},"more":12345678901234567890,"group_id":"s1","network":{"id":"s1"}}`, string(got.Data))
	assert.Equal(t, api.Running, s.stage("s1").Status)
	assert.Equal(t, id, s.stage("s1").DelegateID)
	require.Equal(t, 204, s.respond(id, got.ID, succeeded))

	got = s.pass(id, executeTask, `{"code":"OK","data":{"command_execution_status":"SUCCESS","output_vars":{"K":"v"},
		"outputs":[{"key":"a","value":"b","type":"STRING"},{"key":"p","value":"fake-value","type":"SECRET"}],
		"artifact":"aGVsbG8=","tests":{"total":2,"passed":1,"failed":1,"failures":[{"name":"TestIt"}]}}}`)
	assert.Equal(t, int64(7000), got.Timeout)
	assert.Contains(t, string(got.Data), `12345678901234567890`)
	assert.JSONEq(t, `{"run":{"commands":["make"]},"cpu_quota":12345678901234567890,"id":"one","name":"one","environment":{},
		"group_id":"s1","network":"s1"}`, string(got.Data))
	got = s.pass(id, executeTask, succeeded)
	assert.Equal(t, int64(9000), got.Timeout, "the payload's time-out is in seconds")
	assert.JSONEq(t, `{"id":"mine","name":"step2","timeout":9,"group_id":"g","network":"n","environment":{"E":"1"}}`, string(got.Data))
	assert.Equal(t, api.Running, s.stage("s1").Status)
	got = s.pass(id, cleanupTask, succeeded)
	assert.JSONEq(t, `{"volumes":[],"group_id":"s1","network":"s1"}`, string(got.Data))

	st = s.ended("s1")
	assert.Equal(t, api.Success, st.Status)
	assert.Equal(t, map[string]string{"K": "v"}, st.Steps[0].OutputVars)
	assert.Equal(t, "b", st.Steps[0].Outputs[0].Value)
	assert.Equal(t, "hello", string(st.Steps[0].Artifact))
	assert.Equal(t, &api.TestSummary{Total: 2, Passed: 1, Failed: 1, Failures: []api.TestFailure{{Name: "TestIt"}}}, st.Steps[0].Tests, "rule D5")
	assert.NotContains(t, asJSON(t, st), "fake-value", "rule S3: a secret output is not shown")
	for _, p := range []api.StepState{st.Init, st.Steps[0], st.Steps[1], st.Cleanup} {
		assert.Equal(t, api.Success, p.Status)
		assert.False(t, p.EndedAt.IsZero())
	}
	assert.Equal(t, 0, s.m.Delegates(account)[0].Stages)
}

// Rule S3: delegates of others repeat a secret output in the output variables, in other outputs and
// in messages. Some answer without the types, which the step's payload has.
func TestASecretOutputIsShownNowhere(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", dockerTypes)
	st := s.submit(`{"steps":[{"id":"a","data":{"outputs":[{"key":"DECLARED","value":"D","type":"SECRET"}]}},{"id":"b","run_on":"always"}]}`)
	s.pass(id, initTask, succeeded)
	s.pass(id, executeTask, `{"code":"OK","data":{"command_execution_status":"FAILURE","error_message":"refused: fake-typed",
		"output_vars":{"TYPED":"fake-typed","DECLARED":"fake-declared","OTHER":"a fake-typed b","SHORT":"7","PLAIN":"17"},
		"outputs":[{"key":"TYPED","value":"fake-typed","type":"SECRET"},{"key":"SHORT","value":"7","type":"SECRET"},
			{"key":"OTHER","value":"a fake-typed b","type":"STRING"}]}}`)
	s.pass(id, executeTask, `{"code":"OK","data":{"command_execution_status":"SUCCESS","output_vars":{"DECLARED":"shown"}}}`)
	s.pass(id, cleanupTask, succeeded)
	got := s.ended(st.ID)
	text := asJSON(t, got)
	assert.NotContains(t, text, "fake-typed")
	assert.NotContains(t, text, "fake-declared")
	assert.Equal(t, map[string]string{
		"TYPED": "[secret]", "DECLARED": "[secret]", "OTHER": "[secret]", "SHORT": "[secret]", "PLAIN": "17",
	}, got.Steps[0].OutputVars)
	assert.Equal(t, "refused: [secret]", got.Steps[0].Error)
	assert.Equal(t, map[string]string{"DECLARED": "shown"}, got.Steps[1].OutputVars, "another step's output with the same name")
}

// A delegate that supports only the local_* types gets those.
func TestTaskTypesFollowTheDelegate(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", []string{"local_init", "local_execute", "local_cleanup", "CI_DOCKER_INITIALIZE_TASK"})
	st := s.submit(`{"steps":[{}]}`)
	s.pass(id, "local_init", succeeded)
	s.pass(id, "local_execute", succeeded)
	s.pass(id, "local_cleanup", succeeded)
	assert.Equal(t, api.Success, s.ended(st.ID).Status)
}

// After a failure the other steps are skipped, unless run_on says otherwise. The
// cleanup always runs.
func TestRunOnDecidesAfterAFailure(t *testing.T) {
	t.Parallel()
	steps := `{"steps":[{"id":"a"},{"id":"b","run_on":"failure"},{"id":"c"},{"id":"d","run_on":"always"}]}`
	for name, c := range map[string]struct {
		answers []string // to init, the steps that run, and the cleanup
		stage   api.Status
		steps   string
		message string
	}{
		"all well": {[]string{succeeded, succeeded, succeeded, succeeded, succeeded},
			api.Success, "SUCCESS SKIPPED SUCCESS SUCCESS", ""},
		"a fails": {[]string{succeeded, failure, succeeded, succeeded, succeeded},
			api.Failure, "FAILURE SUCCESS SKIPPED SUCCESS", `step "a": exit status 1`},
		"c fails": {[]string{succeeded, succeeded, failure, succeeded, succeeded},
			api.Failure, "SUCCESS SKIPPED FAILURE SUCCESS", `step "c": exit status 1`},
		"a times out": {[]string{succeeded, `{"code":"OK","data":{"command_execution_status":"TIMEOUT"}}`, failure, succeeded, succeeded},
			api.Timeout, "TIMEOUT FAILURE SKIPPED SUCCESS", `step "a": the delegate answered TIMEOUT`},
		"init fails": {[]string{failure, succeeded},
			api.Failure, "SKIPPED SKIPPED SKIPPED SKIPPED", "init: exit status 1"},
		"cleanup fails": {[]string{succeeded, succeeded, succeeded, succeeded, failure},
			api.Success, "SUCCESS SKIPPED SUCCESS SUCCESS", ""},
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

// Rules Q1, Q2 and Q5: the capacity bounds the stages and the others wait, HIGH
// before NORMAL, then by age. The API shows the reason.
func TestStagesQueueForASlot(t *testing.T) {
	t.Parallel()
	s := start(t)
	assert.Equal(t, "no delegate is registered: start one", s.submit(`{"id":"a"}`).Reason)
	assert.Equal(t, `no delegate has the tags "gpu": give them to one, or change the selectors`, func() string {
		s.register("other", []string{"custom"})
		return s.submit(`{"id":"gpu","selectors":["gpu"]}`).Reason
	}())
	id := s.register("d", dockerTypes)
	s.ok("POST", "/api/agent/delegates/register-delegate-capacity/"+id+"?accountId=acc", `{"maximumNumberOfBuilds":1}`, nil)
	s.submit(`{"id":"b"}`)
	s.submit(`{"id":"c"}`)
	s.submit(`{"id":"h","priority":"HIGH"}`)
	assert.Equal(t, "no delegate with the right tags supports CI_DOCKER_INITIALIZE_TASK, CI_DOCKER_EXECUTE_TASK, "+
		"CI_DOCKER_CLEANUP_TASK; or local_init, local_execute, local_cleanup: start one that does", s.submit(`{"id":"o","selectors":["other"]}`).Reason)
	for place, id := range []string{"h", "gpu", "b", "c", "o"} {
		assert.Equal(t, place+1, s.stage(id).Place, id)
	}
	var all struct{ Stages []api.Stage }
	s.ok("GET", "/api/stages?accountId=acc", "", &all)
	var ids []string
	for _, st := range all.Stages {
		ids = append(ids, fmt.Sprintf("%s%d", st.ID, st.Place))
	}
	assert.Equal(t, []string{"a0", "gpu2", "b3", "c4", "h1", "o5"}, ids)
	assert.Equal(t, "one eligible delegate, at capacity (one slot)", s.stage("h").Reason)
	for _, next := range []string{"a", "h", "b", "c"} {
		got := s.pass(id, initTask, succeeded)
		assert.Contains(t, string(got.Data), `"group_id":"`+next+`"`)
		s.pass(id, cleanupTask, succeeded)
		assert.Equal(t, api.Success, s.ended(next).Status)
	}
}

// A submission is idempotent under its id. Another request under the id is refused.
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
	assert.Equal(t, 409, s.call("POST", "/api/stages?accountId=acc", withInit(`{"id":"t1"}`)).status)
	assert.Len(t, s.m.Stages(account), 1)
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, body := range []string{
		`{"infra":"moon"}`, `{"priority":"URGENT"}`, `{"timeout_ms":-1}`, `{"queue_timeout_ms":-1}`, `{"init":[]}`,
		`{"init":{"network":7}}`, `{"init":{"group_id":7}}`, `{"init":{"network":{"id":7}}}`, `{"cleanup":"x"}`,
		`{"steps":[{"data":[]}]}`, `{"steps":[{"id":"a"},{"id":"a"}]}`, `{"steps":[{"run_on":"never"}]}`,
		`{"steps":[{"timeout_ms":-1}]}`, `{"id":"` + strings.Repeat("x", 300) + `"}`,
	} {
		r := s.call("POST", "/api/stages?accountId=acc", withInit(body))
		assert.Equal(t, 400, r.status, body)
		assert.Contains(t, r.body, "invalid request: ", body)
	}
	for _, body := range []string{`{}`, `null`, `{"type":"x","timeout_ms":-1}`, `{"type":"x","priority":"LOW"}`} {
		assert.Equal(t, 400, s.call("POST", "/api/tasks?accountId=acc", body).status, body)
	}
	_, err := s.m.SubmitStage(t.Context(), "unheard-of", api.StageRequest{})
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

// Ended stages are forgotten, so that memory is bounded.
func TestEndedStagesAreForgotten(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.Retention, c.ForgetLost, c.MaxFinished = time.Minute, 10*time.Minute, 2 })
	for _, id := range []string{"a", "b", "c"} {
		s.submit(`{"id":"` + id + `"}`)
		s.ok("POST", "/api/stages/"+id+"/abort?accountId=acc", "", nil)
	}
	assert.Equal(t, 404, s.call("GET", "/api/stages/a?accountId=acc", "").status, "the manager remembers the newest two")
	assert.Equal(t, 200, s.call("GET", "/api/stages/b?accountId=acc", "").status)
	s.advanceUntil(time.Minute, func() bool { return len(s.m.Stages(account)) == 0 })
	s.register("d", nil)
	s.advanceUntil(time.Minute, func() bool { return s.m.Delegates(account)[0].State == "LOST" })
	s.advanceUntil(10*time.Minute, func() bool { return len(s.m.Delegates(account)) == 0 })
}

func TestTheDelegatesAreListed(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("mac-1", dockerTypes, "macOS")
	s.ok("POST", "/api/agent/delegates/register-delegate-capacity/"+id+"?accountId=acc", `{"maximumNumberOfBuilds":3}`, nil)
	s.submit(`{"id":"build","selectors":["MACOS"," mac-1 "]}`)
	s.take(id, initTask)
	var got struct{ Delegates []json.RawMessage }
	s.ok("GET", "/api/delegates?accountId=acc", "", &got)
	require.Len(t, got.Delegates, 1)
	assert.JSONEq(t, `{"id":"`+id+`","name":"mac-1","state":"ALIVE","tags":["macOS"],"task_types":`+asJSON(t, dockerTypes)+`,
		"max_stages":3,"stages":1,"running":1,"stage_ids":["build"],"registered_at":"2023-11-14T22:13:20Z","last_heartbeat":"2023-11-14T22:13:20Z","history":[{"at":"2023-11-14T22:13:20Z","kind":"registered"}]}`,
		string(got.Delegates[0]))
}
