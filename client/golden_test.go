package client_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/task"
)

var clock = time.UnixMilli(1_700_000_000_123)

func at() time.Time { return clock }

// Every call of docs/protocol.md 1 and 2: method, path, query and body. The ids
// contain characters that must be escaped.
func TestCallsHaveTheWireForm(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	reg := &client.Registration{
		DelegateName: "n", DelegateID: "d/1", DelegateType: "DOCKER", HostName: "h",
		SupportedTaskTypes: []string{"A"}, Tags: []string{"x", "y"}, Version: "1",
	}
	const fullReg = `{"accountId":"acc 1","delegateName":"n","delegateRandomToken":"` + fakeSecret + `",
		"lastHeartBeat":1700000000123,"delegateId":"d/1","delegateType":"DOCKER","ng":true,"pollingModeEnabled":true,
		"hostName":"h","supportedTaskTypes":["A"],"tags":["x","y"],"heartbeatAsObject":true,"version":"1"}`
	tsk := &task.Task{ID: "t 1", Type: "A"}
	runner := &task.Task{ID: "t 1", Type: "A", RunnerResponse: true}
	ok := &task.Response{Code: task.OK, Data: json.RawMessage(`{"x":1}`)}
	event := task.Event{TaskID: "t 1", TaskType: "A"}

	const taskV1, requestV2 = `{"id":"t 1"}`, `{"requests":[{"task":{"id":"t 1"}}]}`
	for name, tc := range map[string]struct {
		protocol client.Protocol
		do       func(*client.HTTP) error
		answer   string
		method   string
		uri      string
		body     string // JSON; empty: no body
	}{
		"register": {client.V1, func(c *client.HTTP) error { _, err := c.Register(ctx, reg); return err },
			`{"resource":{"delegateId":"d"}}`, "POST", "/base/api/agent/delegates/register?accountId=acc+1", fullReg},
		"heartbeat": {client.V1, func(c *client.HTTP) error { return c.Heartbeat(ctx, reg) },
			`not JSON at all`, "POST", "/base/api/agent/delegates/heartbeat-with-polling?accountId=acc+1", fullReg},
		"unregister": {client.V1, func(c *client.HTTP) error {
			return c.Unregister(ctx, &client.Unregistration{DelegateID: "d/1", HostName: "h", DelegateType: "DOCKER",
				IPAddress: "192.0.2.1", OrgIdentifier: "o", ProjectIdentifier: "p"})
		}, "", "POST", "/base/api/agent/delegates/unregister?accountId=acc+1",
			`{"delegateId":"d/1","hostName":"h","ng":true,"delegateType":"DOCKER","ipAddress":"192.0.2.1",
			"orgIdentifier":"o","projectIdentifier":"p"}`},
		"capacity": {client.V1, func(c *client.HTTP) error { return c.ReportCapacity(ctx, "d/1", 3) },
			"", "POST", "/base/api/agent/delegates/register-delegate-capacity/d%2F1?accountId=acc+1", `{"maximumNumberOfBuilds":3}`},
		"poll v1": {client.V1, func(c *client.HTTP) error { _, err := c.Poll(ctx, "d/1", client.PollQuery{}); return err },
			`{}`, "GET", "/base/api/agent/delegates/d%2F1/task-events?accountId=acc+1", ""},
		"poll v2": {client.V2, func(c *client.HTTP) error { _, err := c.Poll(ctx, "d/1", client.PollQuery{}); return err },
			`{}`, "GET", "/base/api/executions/d%2F1/runner-events?accountId=acc+1", ""},
		"poll that waits": {client.V1, func(c *client.HTTP) error {
			_, err := c.Poll(ctx, "d", client.PollQuery{Wait: 1500 * time.Millisecond, Since: "a&b"})
			return err
		}, `{}`, "GET", "/base/api/agent/delegates/d/task-events?accountId=acc+1&wait=2&since=a%26b", ""},
		"poll with a cursor that does not wait": {client.V2, func(c *client.HTTP) error {
			_, err := c.Poll(ctx, "d", client.PollQuery{Since: "a"})
			return err
		}, `{}`, "GET", "/base/api/executions/d/runner-events?accountId=acc+1", ""},
		"acquire v1": {client.V1, func(c *client.HTTP) error { _, err := c.Acquire(ctx, "d/1", event); return err },
			taskV1, "PUT", "/base/api/agent/v2/delegates/d%2F1/tasks/t%201/acquire?accountId=acc+1&delegateInstanceId=d%2F1", ""},
		"acquire v2": {client.V2, func(c *client.HTTP) error { _, err := c.Acquire(ctx, "d/1", event); return err }, requestV2,
			"GET", "/base/api/executions/t%201/request?delegateId=d%2F1&accountId=acc+1&delegateInstanceId=d%2F1&delegateName=", ""},
		"reconcile": {client.V2, func(c *client.HTTP) error {
			got, err := c.ReconcileDaemons(ctx, "d/1", []task.DaemonReport{{ID: "s", Type: "x", Config: json.RawMessage(`{"image":"i"}`), Healthy: true}}, client.PollQuery{})
			if err == nil {
				assert.Equal(t, &client.DaemonSets{Sets: []task.DaemonSet{{ID: "s", Type: "x", Config: json.RawMessage(`{}`), SkipUpdate: true, TaskIDs: []string{"t"}}}}, got)
			}
			return err
		}, `{"data":[{"daemon_set_id":"s","config":{},"skip_update":true,"task_ids":["t"],"type":"x","new":1}]}`,
			"POST", "/base/api/daemons/d%2F1/reconcile?accountId=acc+1",
			`{"data":[{"daemon_set_id":"s","type":"x","config":{"image":"i"},"healthy":true}]}`},
		"reconcile of nothing": {client.V1, func(c *client.HTTP) error {
			_, err := c.ReconcileDaemons(ctx, "d", nil, client.PollQuery{Wait: time.Second, Since: "a"})
			return err
		}, `{"data":null}`, "POST", "/base/api/daemons/d/reconcile?accountId=acc+1&wait=1&since=a", `{"data":[]}`},
		"daemon tasks": {client.V2, func(c *client.HTTP) error {
			got, err := c.DaemonTasks(ctx, "d/1", []string{"t 1"})
			if err == nil && assert.Len(t, got, 1) {
				assert.Equal(t, "t 1", got[0].ID)
				assert.JSONEq(t, `{"x":1}`, string(got[0].Data))
				assert.JSONEq(t, `{"y":2}`, string(got[0].Secrets[0].Data))
			}
			return err
		}, `{"requests":[{"id":"t 1","task":{"type":"any","data":"eyJ4IjoxfQ=="},"secrets":[{"id":"k","data":"eyJ5IjoyfQ=="}]}]}`,
			"POST", "/base/api/daemons/d%2F1/tasks?accountId=acc+1", `{"task_ids":["t 1"]}`},
		"respond legacy": {client.V1, func(c *client.HTTP) error { return c.Respond(ctx, "d/1", tsk, ok) },
			"", "POST", "/base/api/agent/v2/tasks/t%201/delegates/d%2F1?accountId=acc+1",
			`{"id":"t 1","data":{"x":1},"type":"A","code":"OK"}`},
		"respond runner": {client.V1, func(c *client.HTTP) error { return c.Respond(ctx, "d/1", runner, ok) },
			"", "POST", "/base/api/executions/t%201/response?accountId=acc+1&delegateId=d%2F1",
			`{"id":"t 1","type":"A","code":"OK","error":"","data":"eyJ4IjoxfQ=="}`},
		"respond v2": {client.V2, func(c *client.HTTP) error { return c.Respond(ctx, "d/1", tsk, ok) },
			"", "POST", "/base/api/executions/t%201/task-response?runnerId=d%2F1&accountId=acc+1",
			`{"id":"t 1","type":"A","code":"OK","error":"","data":"eyJ4IjoxfQ=="}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, always(200, tc.answer))
			c := connect(t, s.URL+"/base/", client.WithProtocol(tc.protocol), client.WithClock(at))
			require.NoError(t, tc.do(c))
			seen := s.requests()
			require.Len(t, seen, 1)
			assert.Equal(t, tc.method, seen[0].Method)
			assert.Equal(t, tc.uri, seen[0].URI)
			assert.Equal(t, "application/json", seen[0].Header.Get("Content-Type"))
			assert.Equal(t, fakeHash, seen[0].Header.Get("delegateTokenHash"))
			if tc.body == "" {
				assert.Empty(t, seen[0].Body)
			} else {
				assert.JSONEq(t, tc.body, seen[0].Body)
			}
		})
	}
}

// docs/protocol.md 2: an acquire sends the registered name of the delegate.
func TestAcquireV2SendsTheRegisteredName(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n == 1 {
			answer(w, 200, `{"resource":{"delegateId":"d","more":[]},"also":1}`)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	c := connect(t, s.URL, client.WithProtocol(client.V2))
	d, err := c.Register(ctx, &client.Registration{DelegateName: "build 7"})
	require.NoError(t, err)
	assert.Equal(t, &client.Delegate{ID: "d", Name: "build 7"}, d)
	got, err := c.Acquire(ctx, d.ID, task.Event{TaskID: "t"})
	require.NoError(t, err)
	assert.Nil(t, got)
	assert.Equal(t, "/api/executions/t/request?delegateId=d&accountId=acc+1&delegateInstanceId=d&delegateName=build+7", s.requests()[1].URI)
}

// docs/protocol.md 1: calls carry a token that is issued with the secret, and
// reuse it. With a fixed token they have neither hash nor secret.
func TestCallsCarryTheToken(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := serve(t, always(200, `{"resource":{"delegateId":"d"}}`))
	reg := &client.Registration{DelegateName: "n"}

	c := connect(t, s.URL)
	for range 2 {
		_, err := c.Register(ctx, reg)
		require.NoError(t, err)
	}
	assert.Equal(t, &client.Registration{DelegateName: "n"}, reg, "the caller's registration is not touched")

	ready := connectAs(t, s.URL, "", client.WithToken("  fake-ready-made-token\n"))
	_, err := ready.Register(ctx, reg)
	require.NoError(t, err)

	seen := s.requests()
	assertToken(t, seen[0])
	assert.Equal(t, seen[0].Header.Get("Authorization"), seen[1].Header.Get("Authorization"))
	assert.Equal(t, "Delegate fake-ready-made-token", seen[2].Header.Get("Authorization"))
	assert.NotContains(t, seen[2].Header, http.CanonicalHeaderKey("delegateTokenHash"))
	assert.NotContains(t, seen[2].Body, "delegateRandomToken")
}

// Each form reports the outcome, and has a body.
func TestResponseForms(t *testing.T) {
	t.Parallel()
	legacy, runner := task.Task{ID: "t", Type: "A"}, task.Task{ID: "t", Type: "A", RunnerResponse: true}
	for name, tc := range map[string]struct {
		protocol client.Protocol
		task     task.Task
		resp     task.Response
		want     string
	}{
		"legacy failure with data": {client.V1, legacy, task.Response{Code: task.Failed, Error: "e", Data: json.RawMessage(`{"error_msg":"m","code":400}`)},
			`{"id":"t","data":{"error_msg":"m","code":400},"type":"A","code":"FAILED"}`},
		"legacy failure without data": {client.V1, legacy, task.Response{Code: task.Failed, Error: `say "no"`},
			`{"id":"t","data":{"error_msg":"say \"no\""},"type":"A","code":"FAILED"}`},
		"legacy time-out": {client.V1, legacy, task.Response{Code: task.Timeout, Error: "late"},
			`{"id":"t","data":{"code":504,"command_execution_status":"TIMEOUT","error_message":"late","error_msg":"late"},"type":"A","code":"FAILED"}`},
		"legacy time-out without a reason": {client.V1, legacy, task.Response{Code: task.Timeout, Data: []byte("null")},
			`{"id":"t","data":{"code":504,"command_execution_status":"TIMEOUT","error_message":"the task timed out","error_msg":"the task timed out"},"type":"A","code":"FAILED"}`},
		"legacy time-out with data": {client.V1, legacy, task.Response{Code: task.Timeout, Error: "late", Data: []byte(`{"n":12345678901234567890,"error_msg":"m","code":500,"command_execution_status":""}`)},
			`{"id":"t","data":{"code":504,"command_execution_status":"TIMEOUT","error_message":"late","error_msg":"m","n":12345678901234567890},"type":"A","code":"FAILED"}`},
		"legacy time-out with text": {client.V1, legacy, task.Response{Code: task.Timeout, Error: "late", Data: []byte(`too late`)},
			`{"id":"t","data":{"code":504,"command_execution_status":"TIMEOUT","error_message":"late","error_msg":"late"},"type":"A","code":"FAILED"}`},
		"legacy time-out with a status": {client.V1, legacy, task.Response{Code: task.Timeout, Error: "late", Data: []byte(`{"command_execution_status":"FAILURE"}`)},
			`{"id":"t","data":{"command_execution_status":"FAILURE"},"type":"A","code":"FAILED"}`},
		"legacy unknown":        {client.V1, legacy, task.Response{Code: task.Unknown}, `{"id":"t","data":null,"type":"A","code":"FAILED"}`},
		"legacy without a code": {client.V1, legacy, task.Response{}, `{"id":"t","data":null,"type":"A","code":"FAILED"}`},
		"legacy on another":     {client.V1, legacy, task.Response{Code: task.RetryOnOtherDelegate}, `{"id":"t","data":null,"type":"A","code":"RETRY_ON_OTHER_DELEGATE"}`},
		"legacy text": {client.V1, legacy, task.Response{Code: task.OK, Data: []byte("plain \"text\"\n")},
			`{"id":"t","data":"plain \"text\"\n","type":"A","code":"OK"}`},
		"legacy half JSON": {client.V1, legacy, task.Response{Code: task.OK, Data: []byte(`{"a":`)},
			`{"id":"t","data":"{\"a\":","type":"A","code":"OK"}`},
		"legacy blank": {client.V1, legacy, task.Response{Code: task.OK, Data: []byte(" \n")}, `{"id":"t","data":null,"type":"A","code":"OK"}`},
		"legacy bad UTF-8": {client.V1, legacy, task.Response{Code: task.OK, Data: []byte("\"a\xff\"")},
			`{"id":"t","data":"a` + "\uFFFD" + `","type":"A","code":"OK"}`},
		"legacy ids of the task": {client.V1, legacy, task.Response{ID: "other", Type: "other", Code: task.OK}, `{"id":"t","data":null,"type":"A","code":"OK"}`},
		"runner time-out": {client.V1, runner, task.Response{Code: task.Timeout, Error: "late"},
			`{"id":"t","type":"A","code":"TIMEOUT","error":"late","data":""}`},
		"runner unknown":    {client.V1, runner, task.Response{Code: task.Unknown}, `{"id":"t","type":"A","code":"UNKNOWN","error":"","data":""}`},
		"runner on another": {client.V1, runner, task.Response{Code: task.RetryOnOtherDelegate}, `{"id":"t","type":"A","code":"FAILED","error":"","data":""}`},
		"runner text":       {client.V1, runner, task.Response{Code: task.OK, Data: []byte("text\n")}, `{"id":"t","type":"A","code":"OK","error":"","data":"dGV4dAo="}`},
		"v2 time-out": {client.V2, legacy, task.Response{Code: task.Timeout, Error: "late"},
			`{"id":"t","type":"A","code":"FAILED","error":"late","data":"` + base64.StdEncoding.EncodeToString(
				[]byte(`{"code":504,"command_execution_status":"TIMEOUT","error_message":"late","error_msg":"late"}`)) + `"}`},
		"v2 on another": {client.V2, legacy, task.Response{Code: task.RetryOnOtherDelegate}, `{"id":"t","type":"A","code":"FAILED","error":"","data":""}`},
		"v2 success":    {client.V2, legacy, task.Response{Code: task.OK, Data: []byte(`1`)}, `{"id":"t","type":"A","code":"OK","error":"","data":"MQ=="}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, always(204, ""))
			c := connect(t, s.URL, client.WithProtocol(tc.protocol))
			require.NoError(t, c.Respond(within(t), "d", &tc.task, &tc.resp))
			assert.Equal(t, tc.want, s.requests()[0].Body)
		})
	}
}

// An id that a path cannot carry is refused before anything is sent.
func TestIDsThatCannotBeInAPathAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, always(200, `{}`))
	c := connect(t, s.URL)
	ctx := context.Background()
	ok := &task.Response{Code: task.OK}
	for _, id := range []string{"", ".", ".."} {
		_, err := c.Poll(ctx, id, client.PollQuery{})
		require.Error(t, err)
		_, err = c.Acquire(ctx, id, task.Event{TaskID: "t"})
		require.Error(t, err)
		_, err = c.Acquire(ctx, "d", task.Event{TaskID: id})
		require.Error(t, err)
		require.Error(t, c.Respond(ctx, id, &task.Task{ID: "t"}, ok))
		require.Error(t, c.Respond(ctx, "d", &task.Task{ID: id}, ok))
		require.Error(t, c.ReportCapacity(ctx, id, 1))
	}
	err := c.Heartbeat(ctx, &client.Registration{})
	require.ErrorContains(t, err, "register first")
	assert.False(t, errors.Is(err, client.ErrRetryable))
	assert.Empty(t, s.requests())
}
