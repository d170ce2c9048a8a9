package poller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/require"
)

const (
	benchAccount = "acct"
	benchSecret  = "00000000000000000000000000000000"
	executors    = 16
)

// source is a manager that has as many tasks as one wants: it does as little as
// the protocol allows, so that what is measured is the client's side.
type source struct {
	mu       sync.Mutex
	cond     *sync.Cond
	seq      int // of the cursor
	listed   []json.RawMessage
	left     int // to be listed yet
	open     int // listed and not answered
	requests atomic.Int64
	polls    atomic.Int64
	finished chan struct{}
}

// batch is how many tasks the source lists at once.
const batch = 256

func newSource(n int) *source {
	s := &source{left: n, finished: make(chan struct{})}
	s.cond = sync.NewCond(&s.mu)
	s.refill()
	return s
}

func (s *source) refill() {
	s.listed = s.listed[:0]
	for range min(batch, s.left) {
		s.listed = append(s.listed, json.RawMessage(fmt.Sprintf(`{"delegateTaskId":"t%d","taskType":"echo"}`, s.left)))
		s.left--
		s.open++
	}
	s.seq++
	s.cond.Broadcast()
}

func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	switch {
	case r.Method == http.MethodPut: // acquire
		_, _ = io.WriteString(w, `{"id":"","type":"echo","data":{"greeting":"hello"},"timeout":60000}`)
	case strings.HasSuffix(r.URL.Path, "/task-events"):
		s.poll(w, r)
	case strings.HasPrefix(r.URL.Path, "/api/agent/v2/tasks/"): // respond
		_, _ = io.Copy(io.Discard, r.Body)
		s.answered()
	}
}

func (s *source) poll(w http.ResponseWriter, r *http.Request) {
	s.polls.Add(1)
	stop := context.AfterFunc(r.Context(), s.cond.Broadcast)
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for fmt.Sprint(s.seq) == r.URL.Query().Get("since") && r.Context().Err() == nil {
		s.cond.Wait()
	}
	w.Header().Set("Dlite-Cursor", fmt.Sprint(s.seq))
	_ = json.NewEncoder(w).Encode(map[string]any{"delegateTaskEvents": s.listed})
}

func (s *source) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open--; s.open > 0 {
		return
	}
	if s.left > 0 {
		s.refill()
		return
	}
	close(s.finished)
}

// BenchmarkTasks is poll, acquire, handle and respond with 16 executors: by the
// poller, and by a bare net/http loop that makes the same requests. One op is one
// task.
func BenchmarkTasks(b *testing.B) {
	b.Run("poller", func(b *testing.B) {
		b.ReportAllocs()
		src := newSource(b.N)
		srv := httptest.NewServer(src)
		defer srv.Close()
		c, err := client.New(srv.URL, benchAccount, benchSecret)
		require.NoError(b, err)
		defer c.CloseIdleConnections()
		p := poller.New(c, router.New(router.RouteMap{"echo": echo}))
		over := make(chan error, 1)
		b.ResetTimer()
		go func() { over <- p.Poll(b.Context(), executors, "d1", time.Minute) }()
		<-src.finished
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		require.NoError(b, p.Shutdown(context.Background()))
		require.NoError(b, <-over)
	})
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		src := newSource(b.N)
		srv := httptest.NewServer(src)
		defer srv.Close()
		b.ResetTimer()
		bareLoop(b, srv.URL, src)
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	})
}

// bareLoop makes a delegate's requests and nothing else.
func bareLoop(b *testing.B, url string, src *source) {
	b.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	hc := &http.Client{Transport: transport}
	call := func(method, path string, body []byte) []byte {
		req, err := http.NewRequestWithContext(b.Context(), method, url+path, bytes.NewReader(body))
		if err != nil {
			panic(err)
		}
		req.Header.Set("Authorization", "Delegate none")
		req.Header.Set("Content-Type", "application/json")
		resp, err := hc.Do(req)
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close() //nolint:errcheck // read to its end
		out, err := io.ReadAll(resp.Body)
		if err != nil {
			panic(err)
		}
		return out
	}
	ids := make(chan string, batch)
	var loop sync.WaitGroup
	for range executors {
		loop.Go(func() {
			for id := range ids {
				call(http.MethodPut, "/api/agent/v2/delegates/d1/tasks/"+id+"/acquire?accountId=acct&delegateInstanceId=d1", nil)
				call(http.MethodPost, "/api/agent/v2/tasks/"+id+"/delegates/d1?accountId=acct",
					[]byte(`{"id":"`+id+`","type":"echo","code":"OK","data":{"greeting":"hello"}}`))
			}
		})
	}
	for since, left := "", b.N; left > 0; {
		var answer struct {
			Events []struct {
				ID string `json:"delegateTaskId"`
			} `json:"delegateTaskEvents"`
		}
		if err := json.Unmarshal(call(http.MethodGet, "/api/agent/delegates/d1/task-events?accountId=acct&wait=20&since="+since, nil), &answer); err != nil {
			panic(err)
		}
		since = fmt.Sprint(src.polls.Load())
		for _, e := range answer.Events {
			ids <- e.ID
			left--
		}
	}
	close(ids)
	loop.Wait()
	<-src.finished
}

// BenchmarkPickup is the time from a task's submission to its handler's start,
// through the manager: with held polls, and polled plainly every second. One op
// is one task.
func BenchmarkPickup(b *testing.B) {
	for name, tc := range map[string]struct {
		wait  time.Duration
		tasks int // an op's
	}{
		"held polls":          {poller.DefaultWait, 1},
		"polled every second": {0, 1},
	} {
		b.Run(name, func(b *testing.B) {
			m, err := manager.New(manager.Config{Accounts: map[string]string{benchAccount: benchSecret}})
			require.NoError(b, err)
			defer m.Close() //nolint:errcheck // a benchmark
			srv := httptest.NewServer(m)
			defer srv.Close()
			c, err := client.New(srv.URL, benchAccount, benchSecret)
			require.NoError(b, err)
			defer c.CloseIdleConnections()
			started := make(chan time.Time, 1)
			p := poller.New(c, router.New(router.RouteMap{"now": task.HandlerFunc(
				func(context.Context, *task.Request[any]) (any, error) {
					started <- time.Now()
					return nil, nil
				})}), poller.WithWait(tc.wait))
			info, err := p.Register(b.Context())
			require.NoError(b, err)
			over := make(chan error, 1)
			go func() { over <- p.Poll(b.Context(), executors, info.ID, time.Second) }()
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				t, err := m.SubmitTask(b.Context(), benchAccount, manager.TaskRequest{Task: task.Task{Type: "now"}})
				require.NoError(b, err)
				took = append(took, (<-started).Sub(begin))
				_, err = m.WaitTask(b.Context(), benchAccount, t.ID)
				require.NoError(b, err)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			require.NoError(b, p.Shutdown(context.Background()))
			require.NoError(b, <-over)
		})
	}
}
