package manager_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task/stage"
)

const failed = `{"code":"OK","data":{"command_execution_status":"FAILURE","error_message":"it broke"}}`

// ids are the ids that connect the payloads of a stage.
type ids struct {
	GroupID string          `json:"group_id"`
	Network json.RawMessage `json:"network"`
	LogKey  string          `json:"log_key"`
}

func idsOf(t *testing.T, x taken) (i ids) {
	t.Helper()
	require.NoError(t, json.Unmarshal(x.Data, &i))
	return i
}

// Rules Q4 and Q6: a stage whose delegate is lost starts again on another one, after
// a back-off and under new ids. So the lost delegate's cleanup cannot affect it.
func TestAStageIsRunAgain(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) {
		c.HeartbeatTimeout = 30 * time.Second
		c.Logs = func(string, string, string) *stage.LogConfig { return &stage.LogConfig{URL: "http://127.0.0.1:9"} }
	})
	first := s.register("first", dockerTypes)
	s.submit(`{"id":"s","steps":[{"id":"a","data":{}}],"retry":{"max_attempts":3,"backoff_ms":5000}}`)
	init := idsOf(t, s.pass(first, initTask, succeeded))
	step := s.take(first, executeTask)
	second := s.register("second", dockerTypes)
	s.clock.Advance(20 * time.Second)
	require.Equal(t, 200, s.beat(second))
	s.advanceUntil(10*time.Second, func() bool { return s.stage("s").Status == api.Queued })
	st := s.stage("s")
	require.Len(t, st.Attempts, 1)
	assert.Equal(t, api.Failure, st.Attempts[0].Status)
	assert.Contains(t, st.Attempts[0].Error, "lost")
	assert.Equal(t, first, st.Attempts[0].DelegateID)
	assert.Empty(t, s.poll(second).Events, "the back-off has not passed")
	require.Equal(t, 200, s.beat(second))
	require.Equal(t, 200, s.beat(first)) // it has returned, and has a slot for the stage again
	s.advanceUntil(5*time.Second, func() bool { return len(s.poll(second).Events) == 1 })

	again := idsOf(t, s.pass(second, initTask, succeeded))
	assert.NotEqual(t, init.GroupID, again.GroupID)
	assert.NotEqual(t, string(init.Network), string(again.Network))
	assert.NotEqual(t, init.LogKey, again.LogKey)
	next := s.take(second, executeTask)
	assert.NotEqual(t, step.ID, next.ID)
	assert.Equal(t, again.GroupID, idsOf(t, next).GroupID)
	assert.JSONEq(t, `"`+again.GroupID+`"`, string(idsOf(t, next).Network))
	assert.Equal(t, 204, s.respond(first, step.ID, failed), "a late answer has no effect")
	old := idsOf(t, s.pass(first, cleanupTask, succeeded))
	assert.Equal(t, init.GroupID, old.GroupID, "the first attempt is cleaned up where it ran")
	require.Equal(t, 204, s.respond(second, next.ID, succeeded))
	assert.Equal(t, again.GroupID, idsOf(t, s.pass(second, cleanupTask, succeeded)).GroupID)
	st = s.ended("s")
	assert.Equal(t, api.Success, st.Status)
	assert.Empty(t, st.Error)
	assert.Equal(t, second, st.DelegateID)
	assert.Equal(t, again.LogKey, st.Init.LogKey)
}

// Rule Q6: which stages run again, how often and when.
func TestRetryPolicies(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", dockerTypes)
	fail := func(want api.Status) {
		s.pass(d, initTask, succeeded)
		s.pass(d, executeTask, failed)
		s.pass(d, cleanupTask, succeeded)
		require.Equal(t, want, s.stage("s").Status)
	}
	s.submit(`{"id":"s","steps":[{"data":{}}],"retry":{"max_attempts":4,"on":["failure"],"backoff_ms":1000,"max_backoff_ms":3000}}`)
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
		fail(api.Queued)
		s.clock.Advance(wait - time.Millisecond)
		require.Equal(t, 200, s.beat(d))
		require.Empty(t, s.poll(d).Events)
		s.advanceUntil(time.Millisecond, func() bool { return len(s.poll(d).Events) == 1 })
	}
	fail(api.Failure)
	assert.Len(t, s.stage("s").Attempts, 3)
	assert.Equal(t, `step "step1": it broke`, s.stage("s").Error)

	s.submit(`{"id":"lost-only","steps":[{"data":{}}],"retry":{"max_attempts":2}}`)
	s.pass(d, initTask, failed)
	s.pass(d, cleanupTask, succeeded)
	assert.Equal(t, api.Failure, s.ended("lost-only").Status)

	s.submit(`{"id":"aborted","steps":[{"data":{}}],"retry":{"max_attempts":2,"on":["failure","lost","timeout"]}}`)
	init := s.take(d, initTask)
	s.ok("POST", "/api/stages/aborted/abort?accountId=acc", "", nil)
	require.Equal(t, 204, s.respond(d, init.ID, failed))
	s.pass(d, cleanupTask, succeeded)
	assert.Equal(t, api.Aborted, s.ended("aborted").Status, "an aborted stage is not run again")

	for body, want := range map[string]string{
		`{"retry":{"max_attempts":101}}`:                "max_attempts",
		`{"retry":{"max_attempts":2,"on":["success"]}}`: "retry.on",
		`{"retry":{"max_attempts":2,"backoff_ms":-1}}`:  "retry.backoff_ms is -1",
		`{"labels":{"":"x"}}`:                           "label",
		`{"labels":{"a=b":"x"}}`:                        "label",
		`{"pipeline":"a\u0007"}`:                        "pipeline",
		`{"init_timeout_ms":-1}`:                        "init_timeout_ms is -1",
	} {
		r := s.call("POST", "/api/stages?accountId=acc", withInit(body))
		assert.Equal(t, 400, r.status, body)
		assert.Contains(t, r.body, want, body)
	}
}

// A delegate that is alive may report that the machine of a stage, or the end of a step, is lost.
func TestAStageIsRunAgainAfterItsMachineIsLost(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", dockerTypes)
	const gone = `{"code":"OK","data":{"command_execution_status":"FAILURE","failure_kind":"delegate_lost","error_message":"the cloud takes the machine away"}}`
	s.submit(`{"id":"s","steps":[{"id":"a","data":{}}],"retry":{"max_attempts":3,"backoff_ms":1000}}`)
	first := idsOf(t, s.pass(d, initTask, succeeded))
	s.pass(d, executeTask, gone)
	s.pass(d, cleanupTask, succeeded)
	st := s.stage("s")
	require.Equal(t, api.Queued, st.Status)
	require.Len(t, st.Attempts, 1)
	assert.Contains(t, st.Attempts[0].Error, "the cloud takes the machine away")
	s.advanceUntil(time.Second, func() bool { return len(s.poll(d).Events) == 1 })
	s.pass(d, initTask, gone)
	s.pass(d, cleanupTask, succeeded)
	require.Equal(t, api.Queued, s.stage("s").Status, "the init counts too")
	s.advanceUntil(2*time.Second, func() bool { return len(s.poll(d).Events) == 1 })
	assert.NotEqual(t, first.GroupID, idsOf(t, s.pass(d, initTask, succeeded)).GroupID)
	s.pass(d, executeTask, succeeded)
	s.pass(d, cleanupTask, succeeded)
	assert.Equal(t, api.Success, s.ended("s").Status)

	s.submit(`{"id":"failures","steps":[{"id":"a","data":{}}],"retry":{"max_attempts":2,"on":["failure","timeout"]}}`)
	s.pass(d, initTask, succeeded)
	s.pass(d, executeTask, gone)
	s.pass(d, cleanupTask, succeeded)
	assert.Equal(t, api.FailureDelegateLost, s.ended("failures").FailureKind, "each end has one name in the policy")
}

// Rule Q6: a single task is submitted again. Waiting callers see the same task.
func TestATaskIsSubmittedAgain(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.Retention = time.Hour })
	d := s.register("d", []string{"custom"})
	s.ok("POST", "/api/tasks?accountId=acc", `{"id":"t","type":"custom","data":{"n":1},"retry":{"max_attempts":3,"on":["failure"]}}`, nil)
	first := s.pass(d, "custom", failed)
	assert.Equal(t, api.Queued, s.task("t").Status)
	assert.Equal(t, 204, s.respond(d, first.ID, succeeded), "too late")
	s.advanceUntil(time.Second, func() bool { return len(s.poll(d).Events) == 1 })
	second := s.take(d, "custom")
	assert.NotEqual(t, first.ID, second.ID)
	assert.JSONEq(t, string(first.Data), string(second.Data))
	assert.Equal(t, api.Running, s.task("t").Status)
	assert.Equal(t, 1, s.task("t").Attempts)
	require.Equal(t, 200, s.beat(d))
	s.clock.Advance(59 * time.Second)
	require.Equal(t, 200, s.beat(d))
	require.Equal(t, 204, s.respond(d, second.ID, failed))
	s.advanceUntil(2*time.Second, func() bool { return len(s.poll(d).Events) == 1 })
	s.pass(d, "custom", succeeded)
	assert.Equal(t, api.Success, s.task("t").Status)
	assert.Equal(t, 2, s.task("t").Attempts)
	s.ok("POST", "/api/tasks?accountId=acc", `{"id":"t","type":"custom","data":{"n":1},"retry":{"max_attempts":3,"on":["failure"]}}`, nil)
	s.advanceUntil(59*time.Minute-2*time.Second, func() bool { return true }) // the first attempt is forgotten
	assert.Equal(t, api.Success, s.task("t").Status)
	s.advanceUntil(2*time.Minute, func() bool { return s.call("GET", "/api/tasks/t?accountId=acc", "").status == 404 })
}

// Rule Q6: limits by account, pipeline and label hold stages back, with the reason.
// A higher limit releases them at once.
func TestLimitsHoldStagesBack(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", dockerTypes)
	limit := func(group string, most string) {
		s.ok("PUT", "/api/limits?accountId=acc", `{"group":"`+group+`","max":`+most+`}`, nil)
	}
	limit("pipeline:web", "1")
	limit("label:env=prod", "1")
	s.submit(`{"id":"w1","pipeline":"web"}`)
	s.submit(`{"id":"w2","pipeline":"web","labels":{"env":"prod"}}`)
	s.submit(`{"id":"p1","pipeline":"api","labels":{"env":"prod"}}`)
	assert.Len(t, s.poll(d).Events, 2)
	assert.Contains(t, s.stage("w2").Reason, "limit of 1 for")
	limit("pipeline:web", "0")
	assert.Contains(t, s.stage("w2").Reason, `limit of 1 for "label:env=prod"`)
	limit("account", "2")
	limit("label:env=prod", "9")
	assert.Contains(t, s.stage("w2").Reason, "limit of 2 for the account")
	var shown struct{ Limits []api.Limit }
	s.ok("GET", "/api/limits?accountId=acc", "", &shown)
	assert.Equal(t, []api.Limit{{Group: "account", Max: 2, Used: 2}, {Group: "label:env=prod", Max: 9, Used: 1}}, shown.Limits)
	limit("account", "3")
	assert.Len(t, s.poll(d).Events, 3)
	for _, body := range []string{`{"group":"x","max":1}`, `{"group":"pipeline:","max":1}`, `{"group":"account","max":-1}`} {
		assert.Equal(t, 400, s.call("PUT", "/api/limits?accountId=acc", body).status, body)
	}
}

// Rule Q6: the manager drains a delegate and pauses an account, whatever the
// delegate says.
func TestTheManagerDrainsADelegateAndPausesAnAccount(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", dockerTypes)
	s.submit(`{"id":"before"}`)
	s.pass(d, initTask, succeeded)
	s.ok("POST", "/api/delegates/"+d+"/drain?accountId=acc", "", nil)
	s.submit(`{"id":"during"}`)
	require.Equal(t, 200, s.beat(d))
	assert.EqualValues(t, "DRAINING", s.m.Delegates(account)[0].State)
	s.pass(d, cleanupTask, succeeded)
	assert.Equal(t, api.Success, s.ended("before").Status, "it finishes its stages")
	assert.Contains(t, s.stage("during").Reason, "draining")
	s.ok("POST", "/api/pause?accountId=acc", "", nil)
	s.ok("POST", "/api/delegates/"+d+"/resume?accountId=acc", "", nil)
	assert.Empty(t, s.poll(d).Events)
	assert.Contains(t, s.stage("during").Reason, "pause")
	require.NoError(t, s.m.Pause(t.Context(), false))
	s.pending(d, initTask)
	assert.Equal(t, 404, s.call("POST", "/api/delegates/nobody/drain?accountId=acc", "").status)
}

// Rules Q4 and Q7: every manager of a store, and a restarted one, computes the same
// ids for another attempt, also if a cleanup waits for a lost delegate.
func TestAllManagersComputeTheSameAttempt(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), newClock()
	up := func() *server {
		return start(t, func(cfg *manager.Config) {
			cfg.HeartbeatTimeout = 30 * time.Second
			cfg.Clock, cfg.Store, cfg.StoreKeys = c, openSQLite(t, dir), storeKeys
		})
	}
	s := up()
	s.clock = c
	d := s.register("d", dockerTypes)
	submitted := s.submit(`{"id":"s","steps":[{"id":"a","data":{}}],"retry":{"max_attempts":2}}`)
	s.pass(d, initTask, succeeded)
	s.take(d, executeTask)
	s.advanceUntil(30*time.Second, func() bool { return len(s.stage("s").Attempts) == 1 })
	again := s.stage("s")
	assert.Equal(t, submitted.Cleanup.TaskID+"-2", again.Cleanup.TaskID)
	require.NoError(t, s.m.Close())
	assert.Equal(t, again, up().stage("s"))
}
