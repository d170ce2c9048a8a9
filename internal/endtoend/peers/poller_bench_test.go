package peers_test

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
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

// benchManager returns our manager behind a real server.
func benchManager(b *testing.B) (*manager.Manager, *httptest.Server) {
	b.Helper()
	m, err := manager.New(manager.Config{Accounts: map[string]string{benchAccount: benchSecret}})
	require.NoError(b, err)
	srv := httptest.NewServer(m)
	b.Cleanup(func() {
		require.NoError(b, m.Close())
		srv.Close()
	})
	return m, srv
}

// echoTasks submits n tasks and returns their ids.
func echoTasks(b *testing.B, m *manager.Manager, n int) []string {
	b.Helper()
	ids := make([]string, n)
	for i := range ids {
		t, err := m.SubmitTask(b.Context(), benchAccount, manager.TaskRequest{
			Task: task.Task{Type: "echo", Data: json.RawMessage(`{"greeting":"hello"}`)},
		})
		require.NoError(b, err)
		ids[i] = t.ID
	}
	return ids
}

// await waits until all tasks have succeeded.
func await(b *testing.B, m *manager.Manager, ids []string) {
	b.Helper()
	for _, id := range ids {
		t, err := m.WaitTask(b.Context(), benchAccount, id)
		require.NoError(b, err)
		require.Equal(b, api.Success, t.Status)
	}
}

// BenchmarkTasks measures poll, acquire, handle and respond with 16 executors and our manager.
// It compares the poller with a plain net/http loop that makes the same requests without
// reading or deciding anything. One op is a batch of tasks.
func BenchmarkTasks(b *testing.B) {
	const batch = 500
	for name, start := range map[string]func(b *testing.B, url string) (stop func()){
		"poller": startPoller, "bare": startBare,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			m, srv := benchManager(b)
			stop := start(b, srv.URL)
			for b.Loop() {
				await(b, m, echoTasks(b, m, batch))
			}
			b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "tasks/s")
			stop()
		})
	}
}

func startPoller(b *testing.B, url string) func() {
	c, err := client.New(url, benchAccount, benchSecret)
	require.NoError(b, err)
	p := poller.New(c, router.New(router.RouteMap{"echo": echo}))
	info, err := p.Register(b.Context())
	require.NoError(b, err)
	over := make(chan error, 1)
	go func() { over <- p.Poll(b.Context(), executors, info.ID, time.Minute) }()
	return func() {
		require.NoError(b, p.Shutdown(context.Background()))
		require.NoError(b, <-over)
		c.CloseIdleConnections()
	}
}

// startBare makes the requests of a delegate, with its headers.
func startBare(b *testing.B, url string) func() {
	secret, err := token.ParseSecret(benchSecret)
	require.NoError(b, err)
	tok, err := secret.Issue(benchAccount, time.Now(), time.Hour)
	require.NoError(b, err)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	hc := &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(context.Background())
	call := func(method, path, body string) (http.Header, []byte) {
		req, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		req.Header.Set("Authorization", "Delegate "+tok)
		req.Header.Set("delegateTokenHash", secret.Hash())
		req.Header.Set("Content-Type", "application/json")
		resp, err := hc.Do(req)
		if err != nil {
			return nil, nil // the benchmark has ended
		}
		defer resp.Body.Close() //nolint:errcheck // read to its end
		out, _ := io.ReadAll(resp.Body)
		return resp.Header, out
	}
	const account = "?accountId=" + benchAccount
	_, body := call(http.MethodPost, "/api/agent/delegates/register"+account, `{"delegateName":"bare","supportedTaskTypes":["echo"]}`)
	id := regexp.MustCompile(`"delegateId":"([^"]+)"`).FindStringSubmatch(string(body))[1]
	ids := make(chan string, 1000)
	var loops sync.WaitGroup
	for range executors {
		loops.Go(func() {
			for t := range ids {
				call(http.MethodPut, "/api/agent/v2/delegates/"+id+"/tasks/"+t+"/acquire"+account+"&delegateInstanceId="+id, "")
				call(http.MethodPost, "/api/agent/v2/tasks/"+t+"/delegates/"+id+account,
					`{"id":"`+t+`","type":"echo","code":"OK","data":{"greeting":"hello"}}`)
			}
		})
	}
	loops.Go(func() {
		defer close(ids)
		seen := map[string]bool{}
		for since := ""; ; {
			header, body := call(http.MethodGet, "/api/agent/delegates/"+id+"/task-events"+account+"&wait=20&since="+since, "")
			if header == nil {
				return
			}
			since = header.Get("Dlite-Cursor")
			for _, m := range regexp.MustCompile(`"delegateTaskId":"([^"]+)"`).FindAllSubmatch(body, -1) {
				if t := string(m[1]); !seen[t] {
					seen[t] = true
					ids <- t
				}
			}
		}
	})
	return func() {
		cancel()
		loops.Wait()
		transport.CloseIdleConnections()
	}
}

// BenchmarkPickup measures the time from a task's submission to its handler's start, through
// the manager: with held polls, and with a poll every second. One op is one task.
func BenchmarkPickup(b *testing.B) {
	for name, tc := range map[string]struct {
		wait  time.Duration
		pause time.Duration // maximum wait before a submission, so that it comes at any moment between two polls
	}{
		"held polls":          {20 * time.Second, 0},
		"polled every second": {0, 2 * time.Second},
	} {
		b.Run(name, func(b *testing.B) {
			m, srv := benchManager(b)
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
				if tc.pause > 0 {
					<-time.After(rand.N(tc.pause))
				}
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
