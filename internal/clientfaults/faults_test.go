package clientfaults_test

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

	"github.com/delegate-io/dlite/internal/clientfaults"
	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// For each kind, the client sees the expected answer, and the manager has acted or
// not.
func TestFaultKinds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault  clientfaults.Fault
		acted  bool
		status int // 0: the connection breaks before an answer
		check  func(t *testing.T, a answer)
	}{
		"status 503": {clientfaults.Fault{}, false, 503, nil},
		"status 429 with Retry-After": {clientfaults.Fault{Status: 429, RetryAfter: 1500 * time.Millisecond}, false, 429, func(t *testing.T, a answer) {
			assert.Equal(t, "2", a.header.Get("Retry-After"))
		}},
		"status with a message": {clientfaults.Fault{Status: 404, Body: "no such delegate"}, false, 404, func(t *testing.T, a answer) {
			assert.Equal(t, "no such delegate", a.body)
			assert.Empty(t, a.header.Get("Retry-After"))
		}},
		"late status":      {clientfaults.Fault{Status: 502, Late: true}, true, 502, nil},
		"dropped request":  {clientfaults.Fault{Kind: clientfaults.DropRequest}, false, 0, nil},
		"dropped response": {clientfaults.Fault{Kind: clientfaults.DropResponse}, true, 0, nil},
		"hang, then close": {clientfaults.Fault{Kind: clientfaults.Hang, Delay: time.Millisecond}, false, 0, nil},
		"late hang":        {clientfaults.Fault{Kind: clientfaults.Hang, Delay: time.Millisecond, Late: true}, true, 0, nil},
		"slow": {clientfaults.Fault{Kind: clientfaults.Slow, Delay: 20 * time.Millisecond}, true, 200, func(t *testing.T, a answer) {
			assert.Contains(t, a.body, "delegateId")
		}},
		"truncated": {clientfaults.Fault{Kind: clientfaults.Truncate}, true, 200, func(t *testing.T, a answer) {
			assert.ErrorIs(t, a.err, io.ErrUnexpectedEOF)
			assert.True(t, strings.HasPrefix(a.body, `{"resource"`), a.body)
			assert.NotContains(t, a.body, "}")
		}},
		"garbage": {clientfaults.Fault{Kind: clientfaults.Garbage}, true, 200, func(t *testing.T, a answer) {
			assert.Contains(t, a.body, "<html>")
		}},
		"own garbage": {clientfaults.Fault{Kind: clientfaults.Garbage, Body: "]["}, true, 200, func(t *testing.T, a answer) {
			assert.Equal(t, "][", a.body)
		}},
		"empty body": {clientfaults.Fault{Kind: clientfaults.EmptyBody}, true, 200, func(t *testing.T, a answer) {
			assert.Empty(t, a.body)
		}},
		"oversize": {clientfaults.Fault{Kind: clientfaults.Oversize, Size: 200_001}, true, 200, func(t *testing.T, a answer) {
			assert.NoError(t, a.err)
			assert.Len(t, a.body, 200_001)
			assert.JSONEq(t, "{}", a.body)
		}},
		"redirect": {clientfaults.Fault{Kind: clientfaults.Redirect}, false, 307, func(t *testing.T, a answer) {
			assert.Equal(t, "/redirected", a.header.Get("Location"))
		}},
		"redirect elsewhere": {clientfaults.Fault{Kind: clientfaults.Redirect, Status: 302, Location: "http://127.0.0.1/x"}, false, 302, func(t *testing.T, a answer) {
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
			require.NoError(t, srv.WaitCalls(t.Context(), "register", 1))
			assert.Equal(t, tc.acted, len(srv.Delegates()) == 1, "the manager acted")
			assert.Equal(t, 1, injected.Count())
			assert.Equal(t, 1, srv.Injected(tc.fault.Kind))
			if tc.status == 0 {
				assert.Zero(t, srv.Calls()[0].Status)
			}
			raw.register() // the next request meets no fault
		})
	}
}

func TestTruncateAlsoBreaksAnEmptyAnswer(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	d := raw.register()
	srv.Inject(clientfaults.Fault{Kind: clientfaults.Truncate, Times: 1})
	a := raw.do("POST /api/agent/delegates/unregister", `{"delegateId":"`+d+`"}`)
	assert.ErrorIs(t, a.err, io.ErrUnexpectedEOF)
	assert.True(t, srv.Delegates()[0].Unregistration != nil)
}

func TestOversizeIsLargerThanATaskByDefault(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	srv.Inject(clientfaults.Fault{Kind: clientfaults.Oversize})
	resp, err := raw.http.Do(raw.request("POST /api/agent/delegates/register", `{}`))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }() // unread: the server must not block on it
	assert.Greater(t, resp.ContentLength, int64(task.MaxBody))
}

func TestHangWithoutADelayEndsWhenTheClientDisconnects(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	hung := srv.Inject(clientfaults.Fault{Kind: clientfaults.Hang})
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan answer, 1)
	req := raw.request("POST /api/agent/delegates/register", `{"some":"body"}`).WithContext(ctx)
	go func() { got <- raw.send(req) }()

	require.NoError(t, hung.Wait(t.Context(), 1))
	assert.Zero(t, srv.Count(), "the server holds the request")
	cancel()
	assert.ErrorIs(t, (<-got).err, context.Canceled)
	assert.NoError(t, srv.WaitCalls(t.Context(), "register", 1), "the server ended the request")
}

func TestReleaseEndsHeldRequests(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	slow := srv.Inject(clientfaults.Fault{Kind: clientfaults.Slow, Delay: time.Hour, Times: 1})
	hung := srv.Inject(clientfaults.Fault{Kind: clientfaults.Hang})
	got := make(chan answer, 2)
	send := func() { got <- raw.do("POST /api/agent/delegates/register", `{}`) }
	go send()
	require.NoError(t, slow.Wait(t.Context(), 1))
	go send()
	require.NoError(t, hung.Wait(t.Context(), 1))

	srv.Release()

	a, b := <-got, <-got
	if a.err == nil {
		a, b = b, a
	}
	assert.Error(t, a.err, "the hanging request fails")
	assert.NoError(t, b.err)
	assert.Equal(t, http.StatusOK, b.status, b.body)
	srv.Release()
	raw.register()
}

func TestFaultsSelectByCallTaskAndDelegate(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	a, b := raw.register(), raw.register()
	srv.Inject(clientfaults.Fault{Call: "acquire", TaskID: "t1", DelegateID: b})
	srv.Inject(clientfaults.Fault{Call: "heartbeat", Status: 500})
	srv.Submit(&task.Task{ID: "t1", Type: "x"})
	srv.Submit(&task.Task{ID: "t2", Type: "x"})

	assert.Equal(t, 503, raw.do("PUT /api/agent/v2/delegates/"+b+"/tasks/t1/acquire", "").status)
	assert.Equal(t, 503, raw.do("GET /api/executions/t1/request?delegateId="+b, "").status)
	assert.NotEmpty(t, raw.ok("PUT /api/agent/v2/delegates/"+b+"/tasks/t2/acquire", ""))
	assert.NotEmpty(t, raw.ok("PUT /api/agent/v2/delegates/"+a+"/tasks/t1/acquire", ""))
	assert.Equal(t, 500, raw.do("POST /api/agent/delegates/heartbeat-with-polling", "{}").status)
	raw.ok("GET /api/agent/delegates/"+a+"/task-events", "")
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
	first := srv.Inject(clientfaults.Fault{Skip: 1, Times: 2})
	second := srv.Inject(clientfaults.Fault{Status: 500})
	assert.Equal(t, []int{500, 503, 503, 500}, statuses(4), "a request meets one fault, in the order of injection")
	assert.Equal(t, 2, first.Count())
	assert.Equal(t, 2, second.Count())

	second.Remove()
	second.Remove()
	assert.Equal(t, []int{200}, statuses(1))
	srv.Inject(clientfaults.Fault{})
	srv.Clear()
	assert.Equal(t, []int{200}, statuses(1))
	assert.Equal(t, 4, srv.Injected(clientfaults.AnswerStatus))
}

// The seed determines the sequence. The share of faults is close to the
// probability.
func TestProbabilityIsDeterminedByTheSeed(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) string {
		faults := clientfaults.New(seed)
		faults.Inject(clientfaults.Fault{Probability: 0.25})
		h := faults.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		var out strings.Builder
		for range 1000 {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			out.WriteString(map[bool]string{true: "x", false: "."}[rec.Code == 503])
		}
		assert.Equal(t, strings.Count(out.String(), "x"), faults.Injected(clientfaults.AnswerStatus))
		return out.String()
	}
	one := run(1)
	assert.Equal(t, one, run(1))
	assert.NotEqual(t, one, run(2))
	assert.InDelta(t, 250, strings.Count(one, "x"), 50)
}

// Faults recognise calls below any prefix.
func TestFaultsWrapAnyHandler(t *testing.T) {
	t.Parallel()
	faults := clientfaults.New(1)
	var ran atomic.Int32
	h := faults.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran.Add(1)
		_, _ = io.Copy(w, r.Body)
	}))
	srv := httptest.NewServer(h)
	defer srv.Close()
	defer faults.Release()
	faults.Inject(clientfaults.Fault{Call: "respond", TaskID: "t/1", Kind: clientfaults.DropResponse, Times: 1})
	faults.Inject(clientfaults.Fault{Call: "respond", TaskID: "t/1", Kind: clientfaults.Slow, Delay: time.Millisecond, Times: 1})

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
	assert.EqualValues(t, 1, ran.Load(), "the handler ran and its answer was dropped")
	for range 2 { // slow, then without a fault: the body is complete
		got, err := post(path)
		assert.NoError(t, err)
		assert.Equal(t, "body", got)
	}
	assert.EqualValues(t, 3, ran.Load())
}

// A server notices a disconnect only after the body was read, so the fault reads it.
func TestHangReadsTheBodySoThatADisconnectIsNoticed(t *testing.T) {
	t.Parallel()
	faults := clientfaults.New(1)
	hung := faults.Inject(clientfaults.Fault{Kind: clientfaults.Hang})
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

// With HTTP/2 a fault closes the stream and not the connection.
func TestFaultsCloseHTTP2Streams(t *testing.T) {
	t.Parallel()
	faults := clientfaults.New(1)
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
	faults.Inject(clientfaults.Fault{Kind: clientfaults.DropResponse, Times: 1})
	_, err := get()
	assert.Error(t, err)
	faults.Inject(clientfaults.Fault{Kind: clientfaults.Truncate, Times: 1})
	half, err := get()
	assert.Error(t, err)
	assert.Equal(t, `{"a":"whol`, half)
	whole, err := get()
	assert.NoError(t, err)
	assert.JSONEq(t, `{"a":"whole answer"}`, whole)
}

// Injections, removals and requests run concurrently, for the race detector.
func TestFaultsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	raw.http = srv.HTTPClient() // reuses connections
	srv.Inject(clientfaults.Fault{Call: "heartbeat", Kind: clientfaults.DropResponse, Probability: 0.2})
	d := raw.register()
	var wg sync.WaitGroup
	var lost atomic.Int32
	for i := range 8 {
		wg.Go(func() {
			for range 25 {
				i := srv.Inject(clientfaults.Fault{Call: "poll", TaskID: fmt.Sprint(i)})
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

	require.NoError(t, srv.WaitCalls(t.Context(), "heartbeat", 200))
	assert.EqualValues(t, srv.Injected(clientfaults.DropResponse), lost.Load())
	assert.Positive(t, lost.Load())
	assert.Equal(t, 200, srv.Delegates()[0].Heartbeats, "the server accepted every heartbeat")
}

func TestFaultKindsHaveNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for k := clientfaults.AnswerStatus; k <= clientfaults.Redirect; k++ {
		name := k.String()
		assert.NotEmpty(t, name)
		assert.False(t, seen[name] || strings.Contains(name, "("), name)
		seen[name] = true
	}
	assert.Equal(t, "Kind(-1)", clientfaults.Kind(-1).String())
}
