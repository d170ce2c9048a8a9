package manager_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// Register, heartbeat and unregister of protocol v1. The manager answers 404 to an
// unknown delegate, which then registers again (rule C4).
func TestADelegateRegistersSendsHeartbeatsAndUnregisters(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := s.call("POST", "/api/agent/delegates/register?accountId=acc", `{"delegateName":"d","tags":["a"],"surprise":{"x":1}}`)
	require.Equal(t, 200, r.status)
	assert.Regexp(t, `^\{"resource":\{"delegateId":"[^"]+"\}\}$`, r.body)
	id := s.m.Delegates(account)[0].ID

	again := s.call("POST", "/api/agent/delegates/register?accountId=acc", `{"delegateName":"d","delegateId":"`+id+`"}`)
	assert.JSONEq(t, `{"resource":{"delegateId":"`+id+`"}}`, again.body, "a known delegate keeps its id")
	assert.Len(t, s.m.Delegates(account), 1)

	assert.Equal(t, 200, s.beat(id))
	assert.Equal(t, 404, s.beat("nobody"))
	assert.Equal(t, 404, s.call("GET", "/api/agent/delegates/nobody/task-events?accountId=acc", "").status)
	assert.Equal(t, 404, s.call("PUT", "/api/agent/v2/delegates/nobody/tasks/x/acquire?accountId=acc", "").status)
	assert.Equal(t, 404, s.call("POST", "/api/agent/delegates/register-delegate-capacity/nobody?accountId=acc", `{}`).status)

	gone := s.call("POST", "/api/agent/delegates/unregister?accountId=acc",
		`{"delegateId":"`+id+`","hostName":"h","ng":true,"delegateType":"DOCKER","ipAddress":"","orgIdentifier":"","projectIdentifier":""}`)
	assert.Equal(t, 204, gone.status)
	assert.Empty(t, s.m.Delegates(account))
	assert.Equal(t, 404, s.beat(id))
}

// The exact JSON of poll, acquire and the legacy answer in protocol v1. The list
// shows a task until it is acquired, and never again.
func TestATaskInProtocolV1(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", []string{"custom"})
	poll := "/api/agent/delegates/" + id + "/task-events?accountId=acc"
	assert.JSONEq(t, `{"delegateTaskEvents":[],"abortedTaskIds":[]}`, s.call("GET", poll, "").body)

	s.ok("POST", "/api/tasks?accountId=acc", `{"id":"t 1/x","type":"custom","data":{"big":12345678901234567890},"timeout_ms":5000,
		"selectors":["D"],"logging":{"token":"fake","abstractions":{"a":"b"}},"capabilities":[{"c":1}],"unheardOf":[1.50]}`, nil)
	want := `{"delegateTaskEvents":[{"accountId":"acc","delegateTaskId":"t 1/x","sync":false,"taskType":"custom"}],"abortedTaskIds":[]}`
	assert.JSONEq(t, want, s.call("GET", poll, "").body)
	assert.JSONEq(t, want, s.call("GET", poll, "").body, "the task is listed until it is acquired")

	r := s.acquire(id, "t%201%2Fx")
	assert.Equal(t, 200, r.status)
	assert.Contains(t, r.body, "12345678901234567890", "numbers keep their digits")
	assert.Contains(t, r.body, "1.50")
	assert.JSONEq(t, `{"id":"t 1/x","type":"custom","data":{"big":12345678901234567890},"async":true,"timeout":5000,
		"logging":{"token":"fake","abstractions":{"a":"b"}},"capabilities":[{"c":1}],
		"delegate":{"id":"`+id+`","instance_id":"`+id+`"},"unheardOf":[1.50]}`, r.body)
	assert.JSONEq(t, `{"delegateTaskEvents":[],"abortedTaskIds":[]}`, s.call("GET", poll, "").body)
	assert.Equal(t, api.Running, s.task("t%201%2Fx").Status)

	assert.Equal(t, 204, s.respond(id, "t%201%2Fx", `{"id":"","data":{"n":12345678901234567890},"type":"custom","code":"OK"}`))
	got := s.task("t%201%2Fx")
	assert.Equal(t, api.Success, got.Status)
	assert.Equal(t, `{"n":12345678901234567890}`, string(got.Data))
	assert.Equal(t, id, got.DelegateID)
}

// The exact JSON of poll, acquire and answer in protocol v2.
func TestATaskInProtocolV2(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", []string{"custom"})
	poll := "/api/executions/" + id + "/runner-events?accountId=acc"
	assert.JSONEq(t, `{"delegateRunnerEvents":[],"abortedTaskIds":[]}`, s.call("GET", poll, "").body)
	s.ok("POST", "/api/tasks?accountId=acc", `{"id":"t1","type":"custom","data":{"n":1.0},"driver":"cgi","config":{"x":1},
		"timeout_ms":5000,"logger":{"address":"http://log"},"secrets":[{"id":"s1","type":"secret/static","data":{"v":2}}],"more":true}`, nil)
	assert.JSONEq(t, `{"delegateRunnerEvents":[{"accountId":"acc","taskId":"t1","runnerType":"cgi","taskType":"custom"}],"abortedTaskIds":[]}`,
		s.call("GET", poll, "").body)

	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	acquire := "/api/executions/t1/request?delegateId=" + id + "&accountId=acc&delegateInstanceId=" + id + "&delegateName=d"
	assert.JSONEq(t, `{"requests":[{"account":"acc","id":"t1",
		"task":{"id":"t1","type":"custom","data":"`+b64(`{"n":1.0}`)+`","driver":"cgi","config":"`+b64(`{"x":1}`)+`",
			"async":true,"timeout":5000,"logger":{"address":"http://log"},"more":true},
		"secrets":[{"id":"s1","type":"secret/static","data":"`+b64(`{"v":2}`)+`"}]}]}`, s.call("GET", acquire, "").body)
	assert.JSONEq(t, `{"delegateRunnerEvents":[],"abortedTaskIds":[]}`, s.call("GET", poll, "").body)

	body := `{"id":"t1","data":"` + b64(`{"a":1}`) + `","error":"","type":"custom","code":"OK"}`
	assert.Equal(t, 204, s.call("POST", "/api/executions/t1/task-response?runnerId="+id+"&accountId=acc", body).status)
	assert.Equal(t, `{"a":1}`, string(s.task("t1").Data))
}

// The data of a runner's answer may be any bytes.
func TestTheRunnerAnswerIsDecoded(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", []string{"custom"})
	for _, c := range []struct{ name, body, data, message string }{
		{"ok", `{"code":"OK","data":"` + base64.StdEncoding.EncodeToString([]byte("plain text")) + `"}`, `"plain text"`, ""},
		{"failed", `{"code":"FAILED","error":"it broke"}`, "", "it broke"},
		{"timeout", `{"code":"TIMEOUT","error":"too slow","data":null}`, "", "too slow"},
	} {
		s.ok("POST", "/api/tasks?accountId=acc", `{"id":"`+c.name+`","type":"custom","runnerResponse":true}`, nil)
		assert.Contains(t, s.acquire(id, c.name).body, `"runnerResponse":true`)
		assert.Equal(t, 204, s.call("POST", "/api/executions/"+c.name+"/response?accountId=acc&delegateId="+id, c.body).status)
		got := s.task(c.name)
		assert.Equal(t, c.data, string(got.Data))
		assert.Equal(t, c.message, got.Error)
	}
	assert.Equal(t, api.Success, s.task("ok").Status)
	assert.Equal(t, api.Failure, s.task("failed").Status)
	assert.Equal(t, api.Timeout, s.task("timeout").Status)
}

// The meaning of answers. OK alone does not mean success.
func TestTheMeaningOfAnswers(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", []string{"custom"})
	for name, c := range map[string]struct {
		body    string
		status  api.Status
		message string
	}{
		"success":            {succeeded, api.Success, ""},
		"any-data":           {`{"code":"OK","data":[1,2]}`, api.Success, ""},
		"no-data":            {`{"code":"OK"}`, api.Success, ""},
		"ok-but-failure":     {`{"code":"OK","data":{"command_execution_status":"FAILURE","error_message":"exit 1"}}`, api.Failure, "exit 1"},
		"ok-but-timeout":     {`{"code":"OK","data":{"command_execution_status":"TIMEOUT"}}`, api.Timeout, "the delegate answered TIMEOUT"},
		"ok-but-error":       {`{"code":"OK","data":{"error_msg":"bad payload","code":400}}`, api.Failure, "bad payload"},
		"failed":             {`{"code":"FAILED","data":{"error_msg":"no"}}`, api.Failure, "no"},
		"failed-and-success": {`{"code":"FAILED","data":{"command_execution_status":"SUCCESS"}}`, api.Failure, "the delegate answered FAILED without a reason"},
		"failed-and-timeout": {`{"code":"FAILED","data":{"command_execution_status":"TIMEOUT"}}`, api.Timeout, "the delegate answered FAILED without a reason"},
		"late-in-the-old-form": {`{"code":"FAILED","data":{"code":504,"command_execution_status":"TIMEOUT","error_message":"late","error_msg":"late"}}`,
			api.Timeout, "late"},
		"unknown":   {`{"code":"UNKNOWN"}`, api.Failure, "the delegate answered UNKNOWN without a reason"},
		"odd-types": {`{"code":"OK","data":{"command_execution_status":7,"error_msg":[],"exit_code":"x"}}`, api.Success, ""},
	} {
		s.ok("POST", "/api/tasks?accountId=acc", `{"id":"`+name+`","type":"custom"}`, nil)
		require.Equal(t, 200, s.acquire(id, name).status)
		require.Equal(t, 204, s.respond(id, name, c.body), name)
		got := s.task(name)
		assert.Equal(t, c.status, got.Status, name)
		assert.Equal(t, c.message, got.Error, name)
	}
}

// Foreign delegates report the exit code of a failed step in the message only, and -1
// for a step that a signal ended.
func TestExitCodesOfForeignDelegates(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", dockerTypes)
	for answer, want := range map[string]int{
		`"error_message":"1 error occurred:\n\t* exit status 3\n\n"`: 3,
		`"error_message":"exit code 78"`:                             78,
		`"error_message":"exit status 3","exit_code":4`:              4,
		`"error_message":"exit status 5 was expected"`:               0,
		`"error_message":"exit status 99999999999"`:                  0,
		`"error_message":"signal: killed","exit_code":-1`:            0,
	} {
		st := s.submit(`{"steps":[{"id":"a"}]}`)
		s.pass(id, initTask, succeeded)
		s.pass(id, executeTask, `{"code":"OK","data":{"command_execution_status":"FAILURE",`+answer+`}}`)
		s.pass(id, cleanupTask, succeeded)
		assert.Equal(t, want, s.ended(st.ID).Steps[0].ExitCode, answer)
	}
}

// Only one delegate gets a task. If the answer to its acquire was lost, it gets the
// task again.
func TestOnlyOneDelegateGetsATask(t *testing.T) {
	t.Parallel()
	s := start(t)
	mine, other := s.register("mine", []string{"custom"}), s.register("other", []string{"custom"})
	s.ok("POST", "/api/tasks?accountId=acc", `{"id":"t1","type":"custom","selectors":["mine"]}`, nil)
	assert.Equal(t, reply{status: 204}, bare(s.acquire(other, "t1")))
	assert.Equal(t, 409, s.respond(mine, "t1", succeeded), "it has not been acquired")
	first := s.acquire(mine, "t1")
	assert.Equal(t, 200, first.status)
	assert.Equal(t, first.body, s.acquire(mine, "t1").body)
	assert.Equal(t, reply{status: 204}, bare(s.acquire(other, "t1")))
	assert.Equal(t, reply{status: 204}, bare(s.acquire(mine, "unheard-of")))

	assert.Equal(t, 409, s.respond(other, "t1", succeeded))
	assert.Equal(t, 404, s.respond(mine, "unheard-of", succeeded))
	assert.Equal(t, 204, s.respond(mine, "t1", succeeded))
	assert.Equal(t, 204, s.respond(mine, "t1", `{"code":"FAILED"}`), "the second answer is accepted")
	assert.Equal(t, api.Success, s.task("t1").Status, "the second answer changes nothing")
	assert.Equal(t, reply{status: 204}, bare(s.acquire(mine, "t1")))
}

func bare(r reply) reply { return reply{status: r.status, body: r.body} }

// A distributed execute is answered with RUNNING. Later the agent answers with an
// empty id and another type.
func TestARunningAnswerLeavesAStepOpen(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", dockerTypes)
	st := s.submit(`{"steps":[{"id":"a","data":{}}]}`)
	s.pass(id, dockerTypes[0], succeeded)
	step := s.pass(id, dockerTypes[1], `{"code":"OK","data":{"command_execution_status":"RUNNING"}}`)
	assert.Equal(t, api.Running, s.stage(st.ID).Steps[0].Status)
	assert.Equal(t, 204, s.acquire(id, step.ID).status, "an answered task is not assigned again")
	assert.Equal(t, 204, s.respond(id, step.ID, `{"id":"","type":"DLITE_CI_VM_EXECUTE_TASK_V2","code":"OK",
		"data":{"command_execution_status":"FAILURE","error_message":"exit status 3","exit_code":3}}`))
	got := s.stage(st.ID).Steps[0]
	assert.Equal(t, api.Failure, got.Status)
	assert.Equal(t, 3, got.ExitCode)
	s.pass(id, dockerTypes[2], succeeded)
	assert.Equal(t, api.Failure, s.ended(st.ID).Status)
}

// RETRY_ON_OTHER_DELEGATE is honored a limited number of times.
func TestRetryOnOtherDelegateGoesToAnotherOne(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.MaxAttempts = 2 })
	ids := []string{s.register("one", []string{"custom"}), s.register("two", []string{"custom"})}
	s.ok("POST", "/api/tasks?accountId=acc", `{"id":"t1","type":"custom"}`, nil)
	again := `{"code":"RETRY_ON_OTHER_DELEGATE"}`
	s.take(ids[0], "custom")
	assert.Equal(t, 204, s.respond(ids[0], "t1", again))
	assert.Empty(t, s.poll(ids[0]).Events)
	s.take(ids[1], "custom")
	assert.Equal(t, 204, s.respond(ids[0], "t1", again), "the first delegate's answer again")
	assert.Equal(t, api.Running, s.task("t1").Status)
	assert.Equal(t, 204, s.respond(ids[1], "t1", again))
	assert.Equal(t, api.Failure, s.task("t1").Status, "two delegates got the task")
}

// Rule C6: the manager refuses bodies that it cannot decode, with a reason.
func TestBadBodiesAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.MaxBody = 1000 })
	id := s.register("d", []string{"custom"})
	s.ok("POST", "/api/tasks?accountId=acc", `{"id":"t1","type":"custom"}`, nil)
	s.take(id, "custom")
	for _, path := range []string{
		"/api/agent/delegates/register", "/api/agent/delegates/heartbeat-with-polling", "/api/agent/delegates/unregister",
		"/api/agent/delegates/register-delegate-capacity/" + id, "/api/agent/v2/tasks/t1/delegates/" + id,
		"/api/executions/t1/response", "/api/executions/t1/task-response", "/api/stages", "/api/tasks",
	} {
		for body, status := range map[string]int{
			"": 400, "{": 400, `[]`: 400, `{} trailing`: 400, `"` + strings.Repeat("x", 1000) + `"`: 413,
		} {
			query := "?accountId=acc"
			if strings.HasPrefix(path, "/api/executions") {
				query += "&delegateId=" + id + "&runnerId=" + id
			}
			r := s.call("POST", path+query, body)
			assert.Equal(t, status, r.status, "%s %.20q", path, body)
			assert.Regexp(t, `^\{"error_msg":".+"\}$`, r.body)
		}
	}
	r := s.call("POST", "/api/executions/t1/response?accountId=acc&delegateId="+id, `{"code":"OK","data":"not base64!"}`)
	assert.Equal(t, 400, r.status)
	assert.Equal(t, api.Running, s.task("t1").Status)
	assert.Equal(t, 404, s.call("GET", "/api/nothing", "").status)
	assert.Equal(t, 405, s.call("PATCH", "/api/stages?accountId=acc", "").status)
	assert.Equal(t, 400, s.call("GET", "/api/agent/delegates/"+id+"/task-events?accountId=acc&wait=soon", "").status)
}

// Only a token of the account opens the manager.
func TestOnlyATokenOfTheAccountOpensTheManager(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) {
		c.Accounts["encoded"] = base64.StdEncoding.EncodeToString([]byte(otherSecret))
	})
	now := s.clock.Now()
	good := issue(t, fakeSecret, account, now, 20*time.Minute)
	call := func(header, id string) reply {
		o := *s
		scheme, tok, _ := strings.Cut(header, " ")
		o.token = tok
		if scheme != "Delegate" {
			o.http = withHeader(s.http, header)
		}
		return o.call("GET", "/api/delegates?accountId="+id, "")
	}
	for name, c := range map[string]struct {
		header, account string
		status          int
	}{
		"good":                    {"Delegate " + good, account, 200},
		"good bearer":             {"Bearer " + good, account, 200},
		"long-lived":              {"Delegate " + issue(t, fakeSecret, account, now, 10*time.Hour+30*time.Minute), account, 200},
		"secret in base64":        {"Delegate " + issue(t, otherSecret, "encoded", now, time.Hour), "encoded", 200},
		"no account in the query": {"Delegate " + good, "", 400},
		"unknown account":         {"Delegate " + good, "unheard-of", 401},
		"another account":         {"Delegate " + good, otherAccount, 401},
		"another secret":          {"Delegate " + issue(t, otherSecret, account, now, time.Hour), account, 401},
		"another subject":         {"Delegate " + issue(t, fakeSecret, otherAccount, now, time.Hour), account, 403},
		"expired":                 {"Delegate " + issue(t, fakeSecret, account, now.Add(-time.Hour), 20*time.Minute), account, 401},
		"no token":                {"Delegate ", account, 401},
		"the secret itself":       {"Delegate " + fakeSecret, account, 401},
		"other scheme":            {"Basic " + good, account, 401},
	} {
		r := call(c.header, c.account)
		assert.Equal(t, c.status, r.status, name)
		if r.status != 200 {
			assert.Regexp(t, `^\{"error_msg":".+"\}$`, r.body, name)
		}
	}
	s.clock.Advance(22 * time.Minute)
	assert.Equal(t, 401, call("Delegate "+good, account).status, "a cached token expires")
}

// Rule T8: accounts do not see each other, also if they guess ids.
func TestAccountsNeverSeeEachOther(t *testing.T) {
	t.Parallel()
	s := start(t)
	other := s.as(otherSecret, otherAccount)
	id := s.register("d", append([]string{"custom"}, dockerTypes...))
	s.ok("POST", "/api/tasks?accountId=acc", `{"id":"t1","type":"custom"}`, nil)
	st := s.submit(`{"id":"s1"}`)
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/api/agent/delegates/heartbeat-with-polling?accountId=other", `{"delegateId":"` + id + `"}`},
		{"POST", "/api/agent/delegates/unregister?accountId=other", `{"delegateId":"` + id + `"}`},
		{"GET", "/api/agent/delegates/" + id + "/task-events?accountId=other", ""},
		{"PUT", "/api/agent/v2/delegates/" + id + "/tasks/t1/acquire?accountId=other", ""},
		{"GET", "/api/executions/t1/request?delegateId=" + id + "&accountId=other", ""},
		{"POST", "/api/agent/v2/tasks/t1/delegates/" + id + "?accountId=other", succeeded},
		{"GET", "/api/tasks/t1?accountId=other", ""},
		{"POST", "/api/tasks/t1/abort?accountId=other", ""},
		{"GET", "/api/stages/" + st.ID + "?accountId=other", ""},
		{"POST", "/api/stages/" + st.ID + "/abort?accountId=other", ""},
	} {
		assert.Equal(t, 404, other.call(c.method, c.path, c.body).status, c.path)
	}
	assert.JSONEq(t, `{"stages":[]}`, other.call("GET", "/api/stages?accountId=other", "").body)
	assert.JSONEq(t, `{"delegates":[]}`, other.call("GET", "/api/delegates?accountId=other", "").body)
	var theirs struct{ Resource struct{ DelegateID string } }
	other.ok("POST", "/api/agent/delegates/register?accountId=other", `{"delegateId":"`+id+`","delegateName":"d"}`, &theirs)
	assert.NotEqual(t, id, theirs.Resource.DelegateID)
	assert.Equal(t, 202, other.call("POST", "/api/stages?accountId=other", withInit(`{"id":"s1"}`)).status, "accounts may use the same ids")
}
