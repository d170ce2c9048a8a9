package clienttest_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/internal/clientfaults"
	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/protocol.md 1: every path, name and form.
func TestProtocolV1FromRegisterToAnswer(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register("hello")
	raw.ok("POST /api/agent/delegates/register-delegate-capacity/"+d, `{"maximumNumberOfBuilds":3}`)
	raw.ok("POST /api/agent/delegates/heartbeat-with-polling", `{"delegateId":"`+d+`","lastHeartBeat":1700000000000,"sequenceNum":4}`)

	sub := srv.Submit(&task.Task{
		ID: "t1", Type: "hello", Data: json.RawMessage(`{"n":12345678901234567890}`), Timeout: 1500,
		Logging: task.Logging{Token: "log-token", Abstractions: map[string]string{"accountId": "a"}},
	})
	assert.JSONEq(t, `{"delegateTaskEvents":[{"accountId":"clienttest","delegateTaskId":"t1","sync":true,"taskType":"hello"}]}`,
		raw.ok("GET /api/agent/delegates/"+d+"/task-events", ""))

	got := raw.acquireV1(d, "t1")
	assert.JSONEq(t, `{"id":"t1","type":"hello","data":{"n":12345678901234567890},"timeout":1500,
		"logging":{"token":"log-token","abstractions":{"accountId":"a"}}}`, got)
	assert.Contains(t, got, "12345678901234567890", "the number keeps its digits")
	assert.JSONEq(t, `{"delegateTaskEvents":[]}`, raw.ok("GET /api/agent/delegates/"+d+"/task-events", ""))

	assertStatus(t, http.StatusOK, raw.respondLegacy(d, "t1", `{"id":"","type":"hello","code":"OK","data":{"greeting":"hi"}}`))
	resp, err := sub.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, &clienttest.Response{
		Type: "hello", Code: task.OK, Data: json.RawMessage(`{"greeting":"hi"}`), Form: "legacy", DelegateID: d, Attempts: 1,
	}, resp)

	raw.ok("POST /api/agent/delegates/unregister", `{"delegateId":"`+d+`","hostName":"h","ng":true}`)
	delegates := srv.Delegates()
	require.Len(t, delegates, 1)
	assert.Equal(t, d, delegates[0].ID)
	assert.Equal(t, 1, delegates[0].Registrations)
	assert.Equal(t, 1, delegates[0].Heartbeats)
	assert.Equal(t, 3, delegates[0].Capacity)
	assert.EqualValues(t, 1700000000000, delegates[0].Registration.LastHeartbeat, "a heartbeat replaces the registration")
	assert.True(t, delegates[0].Unregistration != nil)
	assert.Equal(t, "h", delegates[0].Unregistration.HostName)
	assert.WithinDuration(t, time.Now(), delegates[0].Seen, time.Minute)
}

// docs/protocol.md 2: base64, secrets and the other paths.
func TestProtocolV2FromRegisterToAnswer(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register()
	sub := srv.Submit(&task.Task{
		ID: "t1", Type: "local_init", Data: json.RawMessage(`{"a":1}`), Driver: "local", Config: json.RawMessage(`{"b":2}`),
		Logger:  &task.Logger{Address: "http://logs", Key: "k"},
		Secrets: []*task.Task{{ID: "s1", Type: "secret/static", Data: json.RawMessage(`{"c":3}`)}},
	})
	assert.JSONEq(t, `{"delegateRunnerEvents":[{"accountId":"clienttest","taskId":"t1","runnerType":"local","taskType":"local_init"}]}`,
		raw.ok("GET /api/executions/"+d+"/runner-events", ""))

	const acquire = "GET /api/executions/t1/request?delegateInstanceId=x&delegateName=raw&delegateId="
	assert.JSONEq(t, `{"requests":[{"id":"t1","account":"clienttest",
		"task":{"id":"t1","type":"local_init","data":"eyJhIjoxfQ==","driver":"local","config":"eyJiIjoyfQ==",
			"logger":{"address":"http://logs","key":"k"}},
		"secrets":[{"id":"s1","type":"secret/static","data":"eyJjIjozfQ=="}]}]}`, raw.ok(acquire+d, ""))
	assert.JSONEq(t, `{"requests":[]}`, raw.ok(acquire+raw.register(), ""), "another delegate has it")

	assertStatus(t, http.StatusOK, raw.do("POST /api/executions/t1/task-response?runnerId="+d,
		`{"id":"t1","type":"local_init","code":"FAILED","error":"no disk","data":"eyJkIjo0fQ=="}`))
	resp, err := sub.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, &clienttest.Response{
		ID: "t1", Type: "local_init", Code: task.Failed, Error: "no disk", Data: json.RawMessage(`{"d":4}`),
		Form: "v2", DelegateID: d, Attempts: 1,
	}, resp)
}

// docs/protocol.md 1: the runner's form has its own path.
func TestRunnerFormIsDecodedFromBase64(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register()
	sub := srv.Submit(&task.Task{ID: "t1", Type: "x", RunnerResponse: true})
	assert.Contains(t, raw.acquireV1(d, "t1"), `"runnerResponse":true`)

	raw.ok("POST /api/executions/t1/response?delegateId="+d, `{"id":"t1","type":"x","code":"TIMEOUT","error":"late","data":null}`)

	resp, err := sub.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "runner", resp.Form)
	assert.Equal(t, task.Timeout, resp.Code)
	assert.Equal(t, "late", resp.Error)
}

// docs/protocol.md 1: the legacy form has the reason in its data.
func TestLegacyErrorComesFromTheData(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register()
	sub := srv.Submit(&task.Task{ID: "t1", Type: "x"})
	raw.acquireV1(d, "t1")

	assertStatus(t, http.StatusOK, raw.respondLegacy(d, "t1", `{"id":"t1","code":"FAILED","data":{"error_msg":"bad","code":400}}`))

	resp, err := sub.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "bad", resp.Error)
}

// docs/protocol.md 1: a distributed execute is answered twice.
func TestTaskStaysOpenWhileItsAnswerSaysRunning(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register()
	sub := srv.Submit(&task.Task{ID: "t1", Type: "DLITE_CI_VM_EXECUTE_TASK_V2"})
	raw.acquireV1(d, "t1")

	raw.respondLegacy(d, "t1", `{"id":"t1","code":"OK","data":{"command_execution_status":"RUNNING"}}`)
	select {
	case <-sub.Done():
		t.Fatal("RUNNING is not final")
	default:
	}
	raw.respondLegacy(d, "t1", `{"id":"","code":"OK","data":{"command_execution_status":"SUCCESS"}}`)
	raw.respondLegacy(d, "t1", `{"id":"","code":"FAILED","data":null}`)

	resp, err := sub.Wait(t.Context())
	require.NoError(t, err)
	assert.JSONEq(t, `{"command_execution_status":"SUCCESS"}`, string(resp.Data), "the first final answer counts")
	assert.Len(t, sub.Responses(), 3, "all are kept")
	assert.Equal(t, 3, sub.Attempts())
}

// docs/protocol.md 1: every call has a token and an account.
func TestCallsWithoutTheAccountsCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	secret, err := token.ParseSecret(srv.Secret)
	require.NoError(t, err)
	issue := func(account string, at time.Time) string {
		tok, err := secret.Issue(account, at, time.Minute)
		require.NoError(t, err)
		return "Delegate " + tok
	}
	other := clienttest.NewServer()
	defer other.Close()
	require.NotEqual(t, srv.Secret, other.Secret, "a secret for each server")

	for name, tc := range map[string]struct {
		change func(http.Header)
		want   int
	}{
		"right":               {func(http.Header) {}, 204},
		"right hash":          {func(h http.Header) { h.Set("delegateTokenHash", secret.Hash()) }, 204},
		"no token":            {func(h http.Header) { h.Del("Authorization") }, 401},
		"another scheme":      {func(h http.Header) { h.Set("Authorization", "Bearer "+raw.tok) }, 401},
		"not a token":         {func(h http.Header) { h.Set("Authorization", "Delegate x.y.z") }, 401},
		"expired":             {func(h http.Header) { h.Set("Authorization", issue("clienttest", time.Now().Add(-time.Hour))) }, 401},
		"of another secret":   {func(h http.Header) { h.Set("Authorization", "Delegate "+newRaw(t, other).tok) }, 401},
		"for another account": {func(h http.Header) { h.Set("Authorization", issue("other", time.Now())) }, 403},
		"wrong hash":          {func(h http.Header) { h.Set("delegateTokenHash", "abc") }, 401},
	} {
		d := raw.register()
		req := raw.request("POST /api/agent/delegates/unregister", `{"delegateId":"`+d+`"}`)
		tc.change(req.Header)
		a := raw.send(req)
		assert.Equal(t, tc.want, a.status, "%s: %s", name, a.body)
	}
	req := raw.request("POST /api/agent/delegates/unregister", `{}`)
	req.URL.RawQuery = "accountId=another"
	assertStatus(t, http.StatusForbidden, raw.send(req))
}

// Rule C4: every call of an unknown delegate gets 404 until it registers again.
func TestUnknownDelegateIsNotFoundOnEveryCall(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register()
	srv.Submit(&task.Task{ID: "t1", Type: "x"})
	raw.acquireV1(d, "t1")
	require.True(t, srv.Forget(d))
	assert.False(t, srv.Forget(d))
	assert.Empty(t, srv.Delegates())

	for call, body := range map[string]string{
		"POST /api/agent/delegates/heartbeat-with-polling":               `{"delegateId":"` + d + `"}`,
		"POST /api/agent/delegates/unregister":                           `{"delegateId":"` + d + `"}`,
		"POST /api/agent/delegates/register-delegate-capacity/" + d:      `{"maximumNumberOfBuilds":1}`,
		"GET /api/agent/delegates/" + d + "/task-events":                 "",
		"GET /api/executions/" + d + "/runner-events?wait=30":            "",
		"PUT /api/agent/v2/delegates/" + d + "/tasks/t1/acquire":         "",
		"GET /api/executions/t1/request?delegateId=" + d:                 "",
		"POST /api/agent/v2/tasks/t1/delegates/" + d:                     `{"code":"OK"}`,
		"POST /api/executions/t1/response?delegateId=" + d:               `{"code":"OK"}`,
		"POST /api/executions/t1/task-response?runnerId=" + d:            `{"code":"OK"}`,
		"GET /api/agent/delegates/" + d + "/something-of-another-server": "",
	} {
		assert.Equal(t, http.StatusNotFound, raw.do(call, body).status, call)
	}
}

func TestRegisteringAgainWithTheIDKeepsIt(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register()
	assert.Contains(t, raw.ok("POST /api/agent/delegates/register", `{"delegateId":"`+d+`"}`), d)
	assert.NotEqual(t, d, raw.register(), "without it, it is another delegate")

	delegates := srv.Delegates()
	require.Len(t, delegates, 2)
	assert.Equal(t, 2, delegates[0].Registrations)
	assert.Equal(t, -1, delegates[0].Capacity, "none was reported")
}

func TestBadBodiesAreRefused(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register()
	srv.Submit(&task.Task{ID: "t1", Type: "x"})
	srv.Submit(&task.Task{ID: "open", Type: "x"})
	raw.acquireV1(d, "t1")
	for _, tc := range []struct {
		call, body string
		want       int
	}{
		{"POST /api/agent/delegates/register", `<html>`, 400},
		{"POST /api/agent/delegates/register", ``, 400},
		{"POST /api/agent/delegates/register-delegate-capacity/" + d, `{}`, 400},
		{"POST /api/agent/delegates/register-delegate-capacity/" + d, `{"maximumNumberOfBuilds":-1}`, 400},
		{"POST /api/agent/v2/tasks/t1/delegates/" + d, ``, 400},
		{"POST /api/agent/v2/tasks/t1/delegates/" + d, `{"code":"TIMEOUT"}`, 400}, // the legacy form has no such code
		{"POST /api/agent/v2/tasks/t1/delegates/" + d, `{}`, 400},
		{"POST /api/agent/v2/tasks/t1/delegates/" + d, `{"id":"t2","code":"OK"}`, 400},
		{"POST /api/executions/t1/response?delegateId=" + d, `{"code":"RETRY_ON_OTHER_DELEGATE"}`, 400},
		{"POST /api/executions/t1/response?delegateId=" + d, `{"code":"OK","data":{"not":"base64"}}`, 400},
		{"POST /api/agent/v2/tasks/nothing/delegates/" + d, `{"code":"OK"}`, 404},
		{"POST /api/agent/v2/tasks/open/delegates/" + d, `{"code":"OK"}`, 409},
		{"DELETE /api/agent/delegates/register", ``, 405},
	} {
		assert.Equal(t, tc.want, raw.do(tc.call, tc.body).status, "%s %s", tc.call, tc.body)
	}
}

// A base URL may have a prefix, and ids may need escapes.
func TestPrefixAndEscapedIDs(t *testing.T) {
	t.Parallel()
	srv, raw := newServerWith(t, clienttest.Config{Prefix: "gateway/api/manager/", Account: "acme", Secret: "00000000000000000000000000000abc"})
	assert.Contains(t, srv.URL, "/gateway/api/manager")
	assert.Equal(t, "acme", srv.Account)
	assert.Equal(t, "00000000000000000000000000000abc", srv.Secret)
	d := raw.register()
	sub := srv.Submit(&task.Task{ID: "a/b c", Type: "x"})

	assert.Equal(t, []string{"a/b c"}, raw.pollV1(d))
	assert.Contains(t, raw.acquireV1(d, "a%2Fb%20c"), `"a/b c"`)
	assertStatus(t, http.StatusOK, raw.respondLegacy(d, "a%2Fb%20c", `{"code":"OK"}`))
	_, err := sub.Wait(t.Context())
	assert.NoError(t, err)
}

func TestTLSServerIsTrustedThroughItsCertificate(t *testing.T) {
	t.Parallel()
	srv := clienttest.Config{TLS: &tls.Config{}}.NewServer()
	defer srv.Close()
	raw := newRaw(t, srv)

	assert.Error(t, raw.do("POST /api/agent/delegates/register", "{}").err, "a client that does not trust the certificate")
	raw.http = srv.HTTPClient()
	raw.register()
	require.NotNil(t, srv.Certificate())
}

func TestAWrongSecretAndWrongTasksPanic(t *testing.T) {
	t.Parallel()
	srv, _ := newServer(t)
	srv.Submit(&task.Task{ID: "twice", Type: "x"})
	for name, f := range map[string]func(){
		"secret":      func() { clienttest.Config{Secret: "short"}.NewServer() },
		"no type":     func() { srv.Submit(&task.Task{}) },
		"an id twice": func() { srv.Submit(&task.Task{ID: "twice", Type: "x"}) },
	} {
		assert.Panics(t, f, name)
	}
}

// Close ends all waiting calls.
func TestCloseEndsWaitingCalls(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register()
	hung := srv.Inject(clientfaults.Fault{Call: "heartbeat", Kind: clientfaults.Hang})
	sub := srv.Submit(&task.Task{Type: "x"})
	raw.acquireV1(d, sub.ID)

	ended := make(chan struct{}, 3)
	go func() { raw.do("GET /api/agent/delegates/"+d+"/task-events?wait=60", ""); ended <- struct{}{} }()
	go func() {
		raw.do("POST /api/agent/delegates/heartbeat-with-polling", `{"delegateId":"`+d+`"}`)
		ended <- struct{}{}
	}()
	go func() {
		_, err := sub.Wait(context.Background())
		assert.ErrorContains(t, err, "the server is closed")
		ended <- struct{}{}
	}()
	require.NoError(t, hung.Wait(t.Context(), 1))
	srv.Close()
	srv.Close()
	for range 3 {
		<-ended
	}
	assert.ErrorContains(t, srv.WaitCalls(t.Context(), "poll", 99), "the server is closed")
}
