package manager_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// held starts a poll that waits, by the manager's clock.
func (s *server) held(ctx context.Context, id, since string) <-chan reply {
	c := make(chan reply, 1)
	go func() {
		r, err := s.do(ctx, "GET", "/api/agent/delegates/"+id+"/task-events?accountId=acc&wait=60&since="+since, "")
		if err != nil {
			r.body = err.Error()
		}
		c <- r
	}()
	return c
}

// within5 returns the next value of a channel. It fails the test after 5 seconds.
func within5[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(5 * time.Second):
		t.Fatal("nothing came")
	}
	return v
}

// waits waits until n calls have an alarm, apart from the manager's loop.
func (s *server) waits(n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		s.clock.mu.Lock()
		defer s.clock.mu.Unlock()
		return len(s.clock.alarms) == n+1
	}, 5*time.Second, time.Millisecond)
}

// Rule C7: a poll is held until a task is pending, and the next one until there is
// something new. The list contains known tasks too, but they do not end the wait.
func TestAPollIsHeldUntilSomethingIsNew(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", []string{"custom"})
	first := s.held(t.Context(), id, "")
	s.waits(1)
	s.ok("POST", "/api/tasks?accountId=acc", `{"id":"t1","type":"custom"}`, nil)
	r := within5(t, first)
	require.Contains(t, r.body, `"t1"`)
	cursor := r.header.Get("Dlite-Cursor")
	require.NotEmpty(t, cursor)

	assert.Contains(t, within5(t, s.held(t.Context(), id, "")).body, `"t1"`, "without a cursor it is new")
	assert.Contains(t, within5(t, s.held(t.Context(), id, "of-another-manager")).body, `"t1"`)
	second := s.held(t.Context(), id, cursor)
	s.waits(1)
	s.ok("POST", "/api/tasks?accountId=acc", `{"id":"t2","type":"custom"}`, nil)
	r = within5(t, second)
	assert.Contains(t, r.body, `"t1"`, "every poll lists the pending task")
	assert.Contains(t, r.body, `"t2"`)
	assert.NotEqual(t, cursor, r.header.Get("Dlite-Cursor"))

	// The manager answers an old cursor at once, because the answer may have been
	// lost.
	assert.Contains(t, within5(t, s.held(t.Context(), id, cursor)).body, `"t2"`)

	// An acquire is not news for the delegate that made it.
	third := s.held(t.Context(), id, r.header.Get("Dlite-Cursor"))
	s.waits(1)
	require.Equal(t, 200, s.acquire(id, "t1").status)
	s.ok("POST", "/api/tasks/t1/abort?accountId=acc", "", nil)
	var l list
	require.NoError(t, json.Unmarshal([]byte(within5(t, third).body), &l))
	assert.Equal(t, []string{"t1"}, l.Aborted, "an abort ends the wait")
}

// Rule C7: every answer to a poll with wait has the header, and no other answer has
// it.
func TestTheCursorMarksHeldPolls(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", []string{"custom"})
	poll := "/api/agent/delegates/" + id + "/task-events?accountId=acc"
	assert.Empty(t, s.call("GET", poll, "").header.Get("Dlite-Cursor"))
	assert.NotEmpty(t, s.call("GET", poll+"&wait=0", "").header.Get("Dlite-Cursor"))
	assert.NotEmpty(t, s.call("GET", "/api/executions/"+id+"/runner-events?accountId=acc&wait=0", "").header.Get("Dlite-Cursor"))

	c := make(chan reply, 1)
	go func() {
		r, err := s.do(t.Context(), "GET", poll+"&wait=86400", "")
		if err != nil {
			r.body = err.Error()
		}
		c <- r
	}()
	s.waits(1)
	s.clock.Advance(time.Minute) // the largest wait
	r := within5(t, c)
	assert.JSONEq(t, `{"delegateTaskEvents":[],"abortedTaskIds":[]}`, r.body)
	assert.NotEmpty(t, r.header.Get("Dlite-Cursor"))
}

// A held poll ends with its delegate, its client and the manager.
func TestAHeldPollEnds(t *testing.T) {
	t.Parallel()
	s := start(t)
	id, leaving := s.register("d", []string{"custom"}), s.register("leaving", nil)
	gone := s.held(t.Context(), leaving, "")
	s.waits(1)
	s.ok("POST", "/api/agent/delegates/unregister?accountId=acc", `{"delegateId":"`+leaving+`"}`, nil)
	assert.Equal(t, 404, within5(t, gone).status)

	ctx, cancel := context.WithCancel(t.Context())
	cancelled := s.held(ctx, id, "")
	s.waits(1)
	cancel()
	within5(t, cancelled)
	s.waits(0) // the manager has ended the call

	held := s.held(t.Context(), id, "")
	s.waits(1)
	require.NoError(t, s.m.Close())
	assert.Equal(t, 200, within5(t, held).status)
	require.NoError(t, s.m.Close(), "closing again does no harm")
}

// Rule Q6: a synchronous submission is held until the answer. A status call can wait
// too.
func TestASynchronousTaskIsHeldUntilItsAnswer(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.MaxSync = time.Second })
	id := s.register("d", []string{"custom"})
	submit := func(body string) <-chan reply {
		c := make(chan reply, 1)
		go func() {
			r, err := s.do(t.Context(), "POST", "/api/tasks?accountId=acc", body)
			if err != nil {
				r.body = err.Error()
			}
			c <- r
		}()
		return c
	}
	done := submit(`{"id":"t1","type":"custom","sync":true}`)
	s.waits(1)
	assert.Contains(t, s.call("GET", "/api/agent/delegates/"+id+"/task-events?accountId=acc", "").body, `"sync":true`)
	s.pass(id, "custom", `{"code":"OK","data":7}`)
	r := within5(t, done)
	assert.Equal(t, 200, r.status)
	assert.Contains(t, r.body, `"data":7`)

	s.waits(0) // otherwise the next wait could find the alarm of the first call
	late := submit(`{"id":"t2","type":"custom","sync":true}`)
	s.waits(1)
	s.clock.Advance(time.Second)
	r = within5(t, late)
	assert.Equal(t, 202, r.status, "the hold is bounded, the task is not")
	assert.Contains(t, r.body, `"QUEUED"`)

	status := make(chan reply, 1)
	go func() {
		r, _ := s.do(t.Context(), "GET", "/api/tasks/t2?accountId=acc&wait=30", "")
		status <- r
	}()
	s.waits(1)
	s.pass(id, "custom", `{"code":"OK","data":8}`)
	assert.Contains(t, within5(t, status).body, `"data":8`)
}

// The Go methods wait like the calls. Their errors give the reason when they end
// early.
func TestTheWaitMethodsWaitLikeTheCalls(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, err := s.m.WaitStage(t.Context(), account, "none")
	require.ErrorIs(t, err, manager.ErrNotFound)
	st, err := s.m.SubmitStage(t.Context(), account, api.StageRequest{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := s.m.WaitStage(ctx, account, st.ID)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, api.Queued, got.Status)
	require.NoError(t, s.m.Close())
	_, err = s.m.WaitStage(t.Context(), account, st.ID)
	require.ErrorIs(t, err, manager.ErrClosed)
}
