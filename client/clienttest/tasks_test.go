package clienttest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/internal/clientfaults"
	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/protocol.md 1: every poll lists all pending tasks that the delegate
// supports.
func TestEveryPollListsAllTasksThatTheDelegateSupports(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	all, some, chosen := raw.register(), raw.register("a", "b"), raw.register("a")
	srv.Submit(&task.Task{ID: "1", Type: "a"})
	srv.Submit(&task.Task{ID: "2", Type: "c"})
	srv.SubmitTo(chosen, &task.Task{ID: "3", Type: "a"})
	srv.Submit(&task.Task{ID: "4", Type: "b", Async: true})

	for range 2 {
		assert.Equal(t, []string{"1", "2", "4"}, raw.pollV1(all))
		assert.Equal(t, []string{"1", "4"}, raw.pollV1(some))
		assert.Equal(t, []string{"1", "3"}, raw.pollV1(chosen))
	}
	assert.Contains(t, raw.ok("GET /api/agent/delegates/"+some+"/task-events", ""), `"delegateTaskId":"4","sync":false`)
	assert.Empty(t, raw.acquireV1(all, "3"), "it is for another delegate")
}

// docs/protocol.md 1: a delegate may repeat an acquire whose answer was lost.
// Another delegate gets nothing.
func TestAcquireIsIdempotentForOneDelegate(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	a, b := raw.register(), raw.register()
	sub := srv.Submit(&task.Task{Type: "x"})
	assert.Empty(t, sub.Owner())

	first := raw.acquireV1(a, sub.ID)
	<-sub.Acquired()
	assert.NotEmpty(t, first)
	assert.Equal(t, first, raw.acquireV1(a, sub.ID))
	assert.Empty(t, raw.acquireV1(b, sub.ID))
	assert.Empty(t, raw.acquireV1(b, "unknown"))
	assert.Equal(t, a, sub.Owner())
	assert.Equal(t, 2, sub.Acquires())

	raw.respondLegacy(a, sub.ID, `{"code":"OK"}`)
	assert.Empty(t, raw.acquireV1(a, sub.ID), "it is done")
}

// Only one of many concurrent delegates gets the task.
func TestOneDelegateAmongManyGetsATask(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	sub := srv.Submit(&task.Task{Type: "x"})
	var mu sync.Mutex
	var wg sync.WaitGroup
	got := 0
	for range 8 {
		d := raw.register()
		wg.Go(func() {
			if raw.acquireV1(d, sub.ID) != "" {
				mu.Lock()
				defer mu.Unlock()
				got++
			}
		})
	}
	wg.Wait()
	assert.Equal(t, 1, got)
	assert.Equal(t, 1, sub.Acquires())
}

func TestSubmitTakesACopyAndMakesIDs(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register()
	one := &task.Task{Type: "x"}
	a, b := srv.Submit(one), srv.Submit(one)
	one.Type = "changed"

	assert.Empty(t, one.ID)
	assert.NotEmpty(t, a.ID)
	assert.NotEqual(t, a.ID, b.ID)
	assert.Contains(t, raw.acquireV1(d, a.ID), `"type":"x"`)
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	srv, _ := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := srv.Submit(&task.Task{Type: "x"}).Wait(ctx)
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, srv.WaitCalls(ctx, "poll", 1), context.Canceled)
	assert.ErrorIs(t, srv.Inject(clientfaults.Fault{}).Wait(ctx, 1), context.Canceled)
}

// Abort withdraws a pending task, and announces a running task in every poll.
func TestAbort(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	a, b := raw.register(), raw.register()
	pending, running := srv.Submit(&task.Task{Type: "x"}), srv.Submit(&task.Task{ID: "run", Type: "x"})
	raw.acquireV1(a, running.ID)

	assert.True(t, srv.Abort(pending.ID))
	_, err := pending.Wait(t.Context())
	assert.ErrorContains(t, err, "aborted before a delegate acquired it")
	assert.Empty(t, raw.acquireV1(a, pending.ID))

	assert.True(t, srv.Abort(running.ID))
	assert.True(t, srv.Abort(running.ID))
	for range 2 {
		assert.JSONEq(t, `{"delegateTaskEvents":[],"abortedTaskIds":["run"]}`, raw.ok("GET /api/agent/delegates/"+a+"/task-events", ""))
		assert.JSONEq(t, `{"delegateRunnerEvents":[],"abortedTaskIds":["run"]}`, raw.ok("GET /api/executions/"+a+"/runner-events", ""))
	}
	assert.NotContains(t, raw.ok("GET /api/agent/delegates/"+b+"/task-events", ""), "run", "only the delegate that runs the task lists the abort")

	raw.respondLegacy(a, running.ID, `{"code":"FAILED"}`)
	resp, err := running.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, task.Failed, resp.Code)
	assert.JSONEq(t, `{"delegateTaskEvents":[]}`, raw.ok("GET /api/agent/delegates/"+a+"/task-events", ""))
	assert.False(t, srv.Abort(running.ID))
	assert.False(t, srv.Abort("unknown"))
}

// waiting starts a poll and returns after the server has received it.
func waiting(raw *raw, delegate, query string) <-chan answer {
	raw.t.Helper()
	seen := func() (at time.Time) {
		for _, d := range raw.srv.Delegates() {
			if d.ID == delegate {
				at = d.Seen
			}
		}
		return at
	}
	before, c := seen(), make(chan answer, 1)
	go func() { c <- raw.do("GET /api/agent/delegates/"+delegate+"/task-events?"+query, "") }()
	require.Eventually(raw.t, func() bool { return seen().After(before) }, 10*time.Second, time.Millisecond)
	return c
}

// Rule C7: the server holds the poll until an entry is pending. Entries before the
// cursor do not end the wait.
func TestPollWaitsForNewEntries(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register("x")

	poll := waiting(raw, d, "wait=60")
	srv.Submit(&task.Task{Type: "of no interest"})
	one := srv.Submit(&task.Task{ID: "one", Type: "x"})
	a := <-poll
	assert.Contains(t, a.body, `"one"`)
	cursor := a.header.Get("Dlite-Cursor")
	require.NotEmpty(t, cursor)

	again := <-waiting(raw, d, "wait=60")
	assert.Contains(t, again.body, `"one"`, "without a cursor anything pending ends the wait")

	poll = waiting(raw, d, "wait=60&since="+cursor)
	select {
	case a := <-poll:
		t.Fatalf("a change before the cursor ended the wait: %s", a.body)
	case <-time.After(50 * time.Millisecond): // nothing can signal that nothing happens
	}
	raw.acquireV1(d, one.ID)
	srv.Abort(one.ID)
	a = <-poll
	assert.JSONEq(t, `{"delegateTaskEvents":[],"abortedTaskIds":["one"]}`, a.body)
	assert.NotEqual(t, cursor, a.header.Get("Dlite-Cursor"))

	poll = waiting(raw, d, "wait=60&since="+a.header.Get("Dlite-Cursor"))
	two := srv.Submit(&task.Task{ID: "two", Type: "x"})
	a = <-poll
	assert.JSONEq(t, `{"delegateTaskEvents":[{"accountId":"clienttest","delegateTaskId":"two","sync":true,"taskType":"x"}],
		"abortedTaskIds":["one"]}`, a.body)
	assert.NotNil(t, two)
}

func TestPollThatWaitsEndsWithItsTime(t *testing.T) {
	t.Parallel()
	_, raw := newServer(t)
	d := raw.register()
	start := time.Now()
	a := <-waiting(raw, d, "wait=1")

	assert.GreaterOrEqual(t, time.Since(start), 900*time.Millisecond)
	assert.JSONEq(t, `{"delegateTaskEvents":[]}`, a.body)
	assert.NotEmpty(t, a.header.Get("Dlite-Cursor"))
}

func TestPollThatWaitsEndsWhenItsDelegateIsForgotten(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register()
	poll := waiting(raw, d, "wait=60")
	srv.Forget(d)
	assert.Equal(t, http.StatusNotFound, (<-poll).status)
}

// Rule C7: polls without a wait, and polls of a manager without the extension, are
// answered at once without a cursor.
func TestPlainPollsAreAnsweredAtOnceWithoutACursor(t *testing.T) {
	t.Parallel()
	_, ours := newServer(t)
	plainServer, plain := newServerWith(t, clienttest.Config{Plain: true})
	for name, tc := range map[string]struct {
		raw   *raw
		query string
	}{
		"ours without wait":  {ours, "x=1"},
		"ours with wait 0":   {ours, "wait=0"},
		"ours with nonsense": {ours, "wait=soon"},
		"plain with wait":    {plain, "wait=60"},
	} {
		a := <-waiting(tc.raw, tc.raw.register(), tc.query)
		assertStatus(t, http.StatusOK, a)
		assert.Empty(t, a.header.Values("Dlite-Cursor"), name)
	}

	d := plain.register()
	sub := plainServer.Submit(&task.Task{Type: "x"})
	plain.acquireV1(d, sub.ID)
	plainServer.Abort(sub.ID)
	assert.JSONEq(t, `{"delegateTaskEvents":[]}`, plain.ok("GET /api/agent/delegates/"+d+"/task-events", ""),
		"a plain manager does not tell of aborts")
}

// The server records every request.
func TestCallsAreRecorded(t *testing.T) {
	t.Parallel()
	srv, raw := newServerWith(t, clienttest.Config{Prefix: "/p"})
	d := raw.register()
	sub := srv.Submit(&task.Task{ID: "t1", Type: "x"})
	raw.acquireV1(d, "t1")
	srv.Inject(clientfaults.Fault{Call: "respond", Kind: clientfaults.DropRequest, Times: 1})
	assert.Error(t, raw.respondLegacy(d, "t1", `{"code":"OK"}`).err)
	assertStatus(t, http.StatusOK, raw.respondLegacy(d, "t1", `{"code":"OK"}`))
	raw.do("GET /health", "")

	resp, err := sub.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, resp.Attempts, "the lost one counts")

	require.NoError(t, srv.WaitCalls(t.Context(), "", 5))
	var calls []string
	for _, c := range srv.Calls() {
		calls = append(calls, c.Call)
	}
	assert.Equal(t, []string{"register", "acquire", "respond",
		"respond", "other"}, calls)
	assert.Equal(t, 5, srv.Count())
	assert.Equal(t, 3, srv.Count("respond", "acquire"))

	responds := srv.Calls("respond")
	require.Len(t, responds, 2)
	lost, got := responds[0], responds[1]
	assert.Zero(t, lost.Status)
	assert.Equal(t, http.StatusOK, got.Status)
	assert.Equal(t, "POST", got.Method)
	assert.Equal(t, "/api/agent/v2/tasks/t1/delegates/"+d, got.Path)
	assert.Equal(t, "clienttest", got.Query.Get("accountId"))
	assert.Equal(t, "application/json", got.Header.Get("Content-Type"))
	assert.JSONEq(t, `{"code":"OK"}`, string(got.Body))
	assert.Equal(t, d, got.DelegateID)
	assert.Equal(t, "t1", got.TaskID)
	assert.Positive(t, got.Duration)
}

// A record has 64 KiB of the body. The answer is complete.
func TestLargeAnswersArriveWhole(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register()
	sub := srv.Submit(&task.Task{ID: "t1", Type: "x"})
	raw.acquireV1(d, "t1")
	data := make([]byte, 200<<10)
	body, err := json.Marshal(map[string]any{"code": "OK", "data": data})
	require.NoError(t, err)
	raw.ok("POST /api/executions/t1/response?delegateId="+d, string(body))

	resp, err := sub.Wait(t.Context())
	require.NoError(t, err)
	assert.Len(t, resp.Data, len(data))
	assert.Len(t, srv.Calls("respond")[0].Body, 64<<10)
}
