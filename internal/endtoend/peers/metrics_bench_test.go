package peers_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/poller/metrics"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/router/tracing"
	"github.com/delegate-io/dlite/task"
)

// nowhere drops all spans, so that the benchmark measures the delegate only.
type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }

func (nowhere) Shutdown(context.Context) error { return nil }

// BenchmarkObserved measures poll, acquire, handle and respond with 16 executors and our
// manager in four variants: without observation, with metrics, with tracing that records
// nothing, and with metrics and all spans recorded and batched. One op is one batch of tasks
// for each variant, in turns. It compares the medians.
func BenchmarkObserved(b *testing.B) {
	const batch = 500
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(nowhere{}))
	defer tp.Shutdown(context.Background()) //nolint:errcheck // drops everything
	metrics := router.Metrics(metrics.NewTasks("echo").Observe)
	variants := []struct {
		name       string
		middleware []router.Middleware
		took       []time.Duration
		run        func()
	}{
		{name: "plain"},
		{name: "metrics", middleware: []router.Middleware{metrics}},
		{name: "metrics-passing", middleware: []router.Middleware{metrics, tracing.Middleware(noop.NewTracerProvider())}},
		{name: "metrics-traces", middleware: []router.Middleware{metrics, tracing.Middleware(tp)}},
	}
	for i := range variants {
		run, stop := echoDelegate(b, batch, variants[i].middleware)
		defer stop()
		variants[i].run = run
		run() // fill connections and pools
	}
	for b.Loop() {
		for i := range variants {
			begun := time.Now()
			variants[i].run()
			variants[i].took = append(variants[i].took, time.Since(begun))
		}
	}
	for i := range variants {
		v := &variants[i]
		slices.Sort(v.took)
		plain := variants[0].took
		b.ReportMetric(float64(v.took[len(v.took)/2].Microseconds())/batch, v.name+"-µs/task")
		if i > 0 {
			b.ReportMetric(float64(v.took[len(v.took)/2])/float64(plain[len(plain)/2]), v.name+"-ratio")
		}
	}
}

// echoDelegate starts a manager and a delegate; run runs a batch of tasks.
func echoDelegate(b *testing.B, batch int, middleware []router.Middleware) (run, stop func()) {
	b.Helper()
	m, err := manager.New(manager.Config{Accounts: map[string]string{benchAccount: benchSecret}})
	require.NoError(b, err)
	srv := httptest.NewServer(m)
	c, err := client.New(srv.URL, benchAccount, benchSecret)
	require.NoError(b, err)
	p := poller.New(c, router.New(router.RouteMap{"echo": echo}, router.WithMiddleware(middleware...)))
	info, err := p.Register(b.Context())
	require.NoError(b, err)
	over := make(chan error, 1)
	go func() { over <- p.Poll(context.WithoutCancel(b.Context()), 16, info.ID, time.Minute) }()
	run = func() {
		ids := make([]string, batch)
		for i := range ids {
			t, err := m.SubmitTask(b.Context(), benchAccount, manager.TaskRequest{
				Task: task.Task{Type: "echo", Data: json.RawMessage(`{"greeting":"hello"}`)},
			})
			require.NoError(b, err)
			ids[i] = t.ID
		}
		for _, id := range ids {
			t, err := m.WaitTask(b.Context(), benchAccount, id)
			require.NoError(b, err)
			require.Equal(b, api.Success, t.Status)
		}
	}
	return run, func() {
		require.NoError(b, p.Shutdown(context.Background()))
		require.NoError(b, <-over)
		require.NoError(b, m.Close())
		srv.Close()
		c.CloseIdleConnections()
	}
}

// BenchmarkMiddleware measures the cost of the middleware alone for a task.
func BenchmarkMiddleware(b *testing.B) {
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(nowhere{}))
	defer tp.Shutdown(context.Background()) //nolint:errcheck // drops everything
	metrics := router.Metrics(metrics.NewTasks("echo").Observe)
	for name, middleware := range map[string][]router.Middleware{
		"plain":           nil,
		"metrics":         {metrics},
		"metrics-passing": {metrics, tracing.Middleware(noop.NewTracerProvider())},
		"metrics-traces":  {metrics, tracing.Middleware(tp)},
	} {
		r := router.New(router.RouteMap{"echo": echo}, router.WithMiddleware(middleware...))
		t := &task.Task{
			ID: "t", Type: "echo", Data: json.RawMessage(`{"greeting":"hello"}`),
			Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if resp, _ := task.Serve(b.Context(), r, t); resp.Code != task.OK {
					b.Fatal(resp.Error)
				}
			}
		})
	}
}
