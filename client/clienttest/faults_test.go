package clienttest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each kind: what the client sees, and whether the manager has acted.
func TestFaultKinds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault  clienttest.Fault
		acted  bool
		status int // 0: the connection breaks before an answer
		check  func(t *testing.T, a answer)
	}{
		"status 503": {clienttest.Fault{}, false, 503, nil},
		"status 429 with Retry-After": {clienttest.Fault{Status: 429, RetryAfter: 1500 * time.Millisecond}, false, 429, func(t *testing.T, a answer) {
			assert.Equal(t, "2", a.header.Get("Retry-After"))
		}},
		"status with a message": {clienttest.Fault{Status: 404, Body: "no such delegate"}, false, 404, func(t *testing.T, a answer) {
			assert.Equal(t, "no such delegate", a.body)
			assert.Empty(t, a.header.Get("Retry-After"))
		}},
		"late status":    {clienttest.Fault{Status: 502, Late: true}, true, 502, nil},
		"lost request":   {clienttest.Fault{Kind: clienttest.LoseRequest}, false, 0, nil},
		"lost response":  {clienttest.Fault{Kind: clienttest.LoseResponse}, true, 0, nil},
		"hang, then cut": {clienttest.Fault{Kind: clienttest.Hang, Delay: time.Millisecond}, false, 0, nil},
		"late hang":      {clienttest.Fault{Kind: clienttest.Hang, Delay: time.Millisecond, Late: true}, true, 0, nil},
		"slow": {clienttest.Fault{Kind: clienttest.Slow, Delay: 20 * time.Millisecond}, true, 200, func(t *testing.T, a answer) {
			assert.Contains(t, a.body, "delegateId")
		}},
		"truncated": {clienttest.Fault{Kind: clienttest.Truncate}, true, 200, func(t *testing.T, a answer) {
			assert.ErrorIs(t, a.err, io.ErrUnexpectedEOF)
			assert.True(t, strings.HasPrefix(a.body, `{"resource"`), a.body)
			assert.NotContains(t, a.body, "}")
		}},
		"garbage": {clienttest.Fault{Kind: clienttest.Garbage}, true, 200, func(t *testing.T, a answer) {
			assert.Contains(t, a.body, "<html>")
		}},
		"own garbage": {clienttest.Fault{Kind: clienttest.Garbage, Body: "]["}, true, 200, func(t *testing.T, a answer) {
			assert.Equal(t, "][", a.body)
		}},
		"empty body": {clienttest.Fault{Kind: clienttest.EmptyBody}, true, 200, func(t *testing.T, a answer) {
			assert.Empty(t, a.body)
		}},
		"oversize": {clienttest.Fault{Kind: clienttest.Oversize, Size: 200_001}, true, 200, func(t *testing.T, a answer) {
			assert.NoError(t, a.err)
			assert.Len(t, a.body, 200_001)
			assert.JSONEq(t, "{}", a.body)
		}},
		"redirect": {clienttest.Fault{Kind: clienttest.Redirect}, false, 307, func(t *testing.T, a answer) {
			assert.Equal(t, "/redirected", a.header.Get("Location"))
		}},
		"redirect elsewhere": {clienttest.Fault{Kind: clienttest.Redirect, Status: 302, Location: "http://127.0.0.1/x"}, false, 302, func(t *testing.T, a answer) {
			assert.Equal(t, "http://127.0.0.1/x", a.header.Get("Location"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, raw := newServer(t)
			tc.fault.Times = 1
			injected := srv.Inject(tc.fault)

			a := raw.do("POST /api/agent/delegates/register", `{"delegateName":"d"}`)

			assert.Equal(t, tc.status, a.status)
			if tc.status == 0 {
				assert.Error(t, a.err)
			}
			if tc.check != nil {
				tc.check(t, a)
			}
			require.NoError(t, srv.WaitCalls(t.Context(), clienttest.CallRegister, 1))
			assert.Equal(t, tc.acted, len(srv.Delegates()) == 1, "did the manager act?")
			assert.Equal(t, 1, injected.Count())
			assert.Equal(t, 1, srv.Faults().Count(tc.fault.Kind))
			record := srv.Calls()[0]
			assert.Equal(t, tc.fault.Kind.String(), record.Fault)
			if tc.status == 0 {
				assert.Zero(t, record.Status)
			}
			raw.register() // the next request is spared
		})
	}
}

// What has no body can be truncated, too.
func TestTruncateOfAnEmptyAnswer(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register()
	srv.Inject(clienttest.Fault{Kind: clienttest.Truncate, Times: 1})
	a := raw.do("POST /api/agent/delegates/unregister", `{"delegateId":"`+d+`"}`)
	assert.ErrorIs(t, a.err, io.ErrUnexpectedEOF)
	assert.True(t, srv.Delegates()[0].Left)
}

// The default of Oversize is more than any client takes.
func TestOversizeIsMoreThanATaskMayHave(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	srv.Inject(clienttest.Fault{Kind: clienttest.Oversize})
	resp, err := raw.http.Do(raw.request("POST /api/agent/delegates/register", `{}`))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }() // unread: the server must not block on it
	assert.Greater(t, resp.ContentLength, int64(task.MaxBody))
}

// A hang without a time lasts as long as the client does.
func TestHangEndsWhenTheClientGoesAway(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	hung := srv.Inject(clienttest.Fault{Kind: clienttest.Hang})
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan answer, 1)
	req := raw.request("POST /api/agent/delegates/register", `{"some":"body"}`).WithContext(ctx)
	go func() { got <- raw.send(req) }()

	require.NoError(t, hung.Wait(t.Context(), 1))
	assert.Zero(t, srv.Count(), "it is held")
	cancel()
	assert.ErrorIs(t, (<-got).err, context.Canceled)
	assert.NoError(t, srv.WaitCalls(t.Context(), clienttest.CallRegister, 1), "the server has let go of it")
}

func TestReleaseLetsGoOfWhatIsHeld(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	slow := srv.Inject(clienttest.Fault{Kind: clienttest.Slow, Delay: time.Hour, Times: 1})
	hung := srv.Inject(clienttest.Fault{Kind: clienttest.Hang})
	got := make(chan answer, 2)
	send := func() { got <- raw.do("POST /api/agent/delegates/register", `{}`) }
	go send()
	require.NoError(t, slow.Wait(t.Context(), 1))
	go send()
	require.NoError(t, hung.Wait(t.Context(), 1))

	srv.Faults().Release()

	a, b := <-got, <-got
	if a.err == nil {
		a, b = b, a
	}
	assert.Error(t, a.err, "the hanging one is cut")
	assertStatus(t, http.StatusOK, b)
	srv.Faults().Release()
	raw.register()
}

func TestFaultsSelectByCallTaskAndDelegate(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	a, b := raw.register(), raw.register()
	srv.Inject(clienttest.Fault{Call: clienttest.CallAcquire, TaskID: "t1", DelegateID: b})
	srv.Inject(clienttest.Fault{Call: clienttest.CallHeartbeat, Status: 500})
	srv.Submit(&task.Task{ID: "t1", Type: "x"})
	srv.Submit(&task.Task{ID: "t2", Type: "x"})

	assert.Equal(t, 503, raw.do("PUT /api/agent/v2/delegates/"+b+"/tasks/t1/acquire", "").status)
	assert.Equal(t, 503, raw.do("GET /api/executions/t1/request?delegateId="+b, "").status)
	assert.NotEmpty(t, raw.acquireV1(b, "t2"))
	assert.NotEmpty(t, raw.acquireV1(a, "t1"))
	assert.Equal(t, 500, raw.do("POST /api/agent/delegates/heartbeat-with-polling", "{}").status)
	raw.pollV1(a)
}

func TestFaultsCountSkipAndRemove(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	statuses := func(n int) (out []int) {
		for range n {
			out = append(out, raw.do("POST /api/agent/delegates/register", "{}").status)
		}
		return out
	}
	first := srv.Inject(clienttest.Fault{Skip: 1, Times: 2})
	second := srv.Inject(clienttest.Fault{Status: 500})
	assert.Equal(t, []int{500, 503, 503, 500}, statuses(4), "one fault a request, in the order of injection")
	assert.Equal(t, 2, first.Count())
	assert.Equal(t, 2, second.Count())

	second.Remove()
	second.Remove()
	assert.Equal(t, []int{200}, statuses(1))
	srv.Inject(clienttest.Fault{})
	srv.Faults().Clear()
	assert.Equal(t, []int{200}, statuses(1))
	assert.Equal(t, 4, srv.Faults().Count(clienttest.AnswerStatus))
}

// The seed decides the sequence; the share is about what was asked for.
func TestProbabilityFollowsItsSeed(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) string {
		faults := clienttest.NewFaults(seed)
		faults.Inject(clienttest.Fault{Probability: 0.25})
		h := faults.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		var out strings.Builder
		for range 1000 {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			out.WriteString(map[bool]string{true: "x", false: "."}[rec.Code == 503])
		}
		assert.Equal(t, strings.Count(out.String(), "x"), faults.Count(clienttest.AnswerStatus))
		return out.String()
	}
	one := run(1)
	assert.Equal(t, one, run(1))
	assert.NotEqual(t, one, run(2))
	assert.InDelta(t, 250, strings.Count(one, "x"), 50)
}

// Faults go in front of any manager, whatever is in front of its paths.
func TestFaultsWrapAnyHandler(t *testing.T) {
	t.Parallel()
	faults := clienttest.NewFaults(1)
	var ran atomic.Int32
	h := faults.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran.Add(1)
		_, _ = io.Copy(w, r.Body)
	}))
	srv := httptest.NewServer(h)
	defer srv.Close()
	defer faults.Release()
	faults.Inject(clienttest.Fault{Call: clienttest.CallRespond, TaskID: "t/1", Kind: clienttest.LoseResponse, Times: 1})
	faults.Inject(clienttest.Fault{Call: clienttest.CallRespond, TaskID: "t/1", Kind: clienttest.Slow, Delay: time.Millisecond, Times: 1})

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	post := func(path string) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+path, strings.NewReader("body"))
		require.NoError(t, err)
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	const path = "/api/prefix/api/executions/t%2F1/task-response?runnerId=d"
	_, err := post(path)
	assert.Error(t, err)
	assert.EqualValues(t, 1, ran.Load(), "the handler ran, its answer was lost")
	for range 2 { // slow, then nothing: the body is still there
		got, err := post(path)
		assert.NoError(t, err)
		assert.Equal(t, "body", got)
	}
	assert.EqualValues(t, 3, ran.Load())
}

// In front of a handler that would have read the body: without that, a server does
// not notice that the client goes away.
func TestHangInFrontOfAnyHandlerEndsWithTheClient(t *testing.T) {
	t.Parallel()
	faults := clienttest.NewFaults(1)
	hung := faults.Inject(clienttest.Fault{Kind: clienttest.Hang})
	ended := make(chan struct{})
	wrapped := faults.Wrap(http.NotFoundHandler())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		wrapped.ServeHTTP(w, r)
	}))
	defer srv.Close()
	defer faults.Release()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader(strings.Repeat("x", 1<<20)))
	require.NoError(t, err)
	gone := make(chan error, 1)
	go func() {
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		gone <- err
	}()
	require.NoError(t, hung.Wait(t.Context(), 1))
	cancel()
	assert.ErrorIs(t, <-gone, context.Canceled)
	<-ended
}

// With HTTP/2 the stream is cut, not the connection.
func TestFaultsCutHTTP2Streams(t *testing.T) {
	t.Parallel()
	faults := clienttest.NewFaults(1)
	srv := httptest.NewUnstartedServer(faults.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"a":"whole answer"}`)
	})))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	get := func() (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
		require.NoError(t, err)
		resp, err := srv.Client().Do(req)
		if err != nil {
			return "", err
		}
		defer func() { _ = resp.Body.Close() }()
		assert.Equal(t, 2, resp.ProtoMajor)
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	faults.Inject(clienttest.Fault{Kind: clienttest.LoseResponse, Times: 1})
	_, err := get()
	assert.Error(t, err)
	faults.Inject(clienttest.Fault{Kind: clienttest.Truncate, Times: 1})
	half, err := get()
	assert.Error(t, err)
	assert.Equal(t, `{"a":"whol`, half)
	whole, err := get()
	assert.NoError(t, err)
	assert.JSONEq(t, `{"a":"whole answer"}`, whole)
}

// Under the race detector: injections, removals and requests all at once.
func TestFaultsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t, clienttest.WithSeed(7))
	raw.http = srv.HTTPClient() // kept connections: faster
	srv.Inject(clienttest.Fault{Call: clienttest.CallHeartbeat, Kind: clienttest.LoseResponse, Probability: 0.2})
	d := raw.register()
	var wg sync.WaitGroup
	var lost atomic.Int32
	for i := range 8 {
		wg.Go(func() {
			for range 25 {
				i := srv.Inject(clienttest.Fault{Call: clienttest.CallPoll, TaskID: fmt.Sprint(i)})
				a := raw.do("POST /api/agent/delegates/heartbeat-with-polling", `{"delegateId":"`+d+`"}`)
				if a.err != nil {
					lost.Add(1)
				}
				_, _, _ = i.Count(), srv.Calls(), srv.Delegates()
				i.Remove()
			}
		})
	}
	wg.Wait()

	require.NoError(t, srv.WaitCalls(t.Context(), clienttest.CallHeartbeat, 200))
	assert.EqualValues(t, srv.Faults().Count(clienttest.LoseResponse), lost.Load())
	assert.Positive(t, lost.Load())
	assert.Equal(t, 200, srv.Delegates()[0].Heartbeats, "each was taken in")
}

func TestFaultKindsHaveNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for k := clienttest.AnswerStatus; k <= clienttest.Redirect; k++ {
		name := k.String()
		assert.NotEmpty(t, name)
		assert.False(t, seen[name] || strings.Contains(name, "("), name)
		seen[name] = true
	}
	assert.Equal(t, "FaultKind(-1)", clienttest.FaultKind(-1).String())
}
