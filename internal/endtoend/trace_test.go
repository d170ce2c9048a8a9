package endtoend_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/router/tracing"
	"github.com/delegate-io/dlite/task/stage"
)

// fakeSecret is a value that no span, metric or health body may contain.
const fakeSecret = "visibly-fake-secret"

// spans stores exported spans and signals each addition.
type spans struct {
	mu    sync.Mutex
	all   tracetest.SpanStubs
	added chan struct{} // closed by the next addition
}

func newSpans() *spans { return &spans{added: make(chan struct{})} }

func (s *spans) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, tracetest.SpanStubsFromReadOnlySpans(spans)...)
	close(s.added)
	s.added = make(chan struct{})
	return nil
}

func (s *spans) Shutdown(context.Context) error { return nil }

// await waits until a span of each name has ended.
func (s *spans) await(t *testing.T, names ...string) tracetest.SpanStubs {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		s.mu.Lock()
		all, added := append(tracetest.SpanStubs(nil), s.all...), s.added
		s.mu.Unlock()
		missing := ""
		for _, name := range names {
			if count(all, name) == 0 {
				missing = name
			}
		}
		if missing == "" {
			return all
		}
		select {
		case <-added:
		case <-late:
			require.FailNow(t, "a span is missing", "%s among %v", missing, all)
		}
	}
}

func count(all tracetest.SpanStubs, name string) (n int) {
	for i := range all {
		if all[i].Name == name {
			n++
		}
	}
	return n
}

// one returns the only span of a name.
func one(t *testing.T, all tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	require.Equal(t, 1, count(all, name), name)
	for i := range all {
		if all[i].Name == name {
			return all[i]
		}
	}
	panic("unreachable")
}

// parent returns the parent span of a span.
func parent(t *testing.T, all tracetest.SpanStubs, of tracetest.SpanStub) tracetest.SpanStub {
	t.Helper()
	for i := range all {
		if all[i].SpanContext.SpanID() == of.Parent.SpanID() {
			return all[i]
		}
	}
	require.FailNow(t, "a parent is missing", "%s", of.Name)
	panic("unreachable")
}

// tracedDelegate starts a real delegate whose steps are in memory. It ends with the test.
func tracedDelegate(t *testing.T, url string, exporter *spans, log zerolog.Logger, d *remembering, protocol client.Protocol) {
	t.Helper()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	stages := transaction.New(d, transaction.WithLedger(t.TempDir()))
	routes := router.New(stages.Routes(), router.WithMiddleware(tracing.Middleware(tp), router.Recover(log), router.Log(log)))
	c, err := client.New(url, account, secret, client.WithProtocol(protocol))
	require.NoError(t, err)
	p := poller.New(c, routes, poller.WithName("traced"), poller.WithStages(stages))
	info, err := p.Register(t.Context())
	require.NoError(t, err)
	over := make(chan error, 1)
	go func() { over <- p.Poll(context.WithoutCancel(t.Context()), 4, info.ID, 10*time.Millisecond) }()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		assert.NoError(t, p.Shutdown(ctx))
		assert.NoError(t, <-over)
		assert.NoError(t, tp.Shutdown(ctx))
		c.CloseIdleConnections()
	})
}

// remembering stores the environment of each step.
type remembering struct {
	*counting
	seen sync.Map // by the step's id
}

// Execute implements [driver.Driver].
func (r *remembering) Execute(
	ctx context.Context, env *driver.Environment, s *driver.Step, out io.Writer, l driver.Ledger,
) (*driver.Result, error) {
	r.seen.Store(s.ID, env.Envs)
	return r.counting.Execute(ctx, env, s, out, l)
}

// callers is the span of the submitter.
const callers = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// submitStage posts a stage as a separate program does.
func submitStage(t *testing.T, url, traceparent, body string) {
	t.Helper()
	s, err := token.ParseSecret(secret)
	require.NoError(t, err)
	tok, err := s.Issue(account, time.Now(), time.Hour)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/stages?accountId="+account, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+tok)
	if traceparent != "" {
		req.Header.Set("traceparent", traceparent)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode, "%s", text)
	http.DefaultClient.CloseIdleConnections()
}

const tracedStage = `{"id":"s1","init":{"envs":{"PASSWORD":"` + fakeSecret + `"}},
	"steps":[{"id":"one","data":{"secrets":["` + fakeSecret + `"],"run":{"commands":["` + fakeSecret + `"]}}}]}`

// Rule L3: one trace goes from the submitter of a stage to the environment of its step, over
// real HTTP in both protocols. It contains no data of the stage.
func TestOneTraceFromTheSubmissionToTheStep(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]client.Protocol{"v1": client.V1, "v2": client.V2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exported := newSpans()
			tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported))
			m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}, TracerProvider: tp})
			require.NoError(t, err)
			srv := httptest.NewServer(m)
			t.Cleanup(func() {
				assert.NoError(t, m.Close())
				srv.Close()
			})
			var log safeBuffer
			d := &remembering{counting: newCounting()}
			submitStage(t, srv.URL, callers, tracedStage) // it waits, because there is no delegate yet
			tracedDelegate(t, srv.URL, exported, zerolog.New(&log), d, protocol)
			s, err := m.WaitStage(t.Context(), account, "s1")
			require.NoError(t, err)
			require.Equal(t, api.Success, s.Status, s.Error)
			all := exported.await(t, "submit", "stage", "queue wait", "acquire", "init", "execute", "cleanup")
			require.Len(t, all, 9, "submit, stage, queue wait, three of acquire, init, execute, cleanup")

			for _, span := range all {
				assert.Equal(t, "0af7651916cd43dd8448eb211c80319c", span.SpanContext.TraceID().String(), span.Name)
				assert.NotEqual(t, codes.Error, span.Status.Code, span.Name)
			}
			assert.Equal(t, "b7ad6b7169203331", one(t, all, "submit").Parent.SpanID().String())
			assert.Equal(t, "submit", parent(t, all, one(t, all, "stage")).Name)
			assert.Equal(t, "stage", parent(t, all, one(t, all, "queue wait")).Name)
			acquires := map[string]bool{}
			for _, kind := range []string{"init", "execute", "cleanup"} {
				from := parent(t, all, one(t, all, kind))
				assert.Equal(t, "acquire", from.Name, kind)
				assert.Equal(t, "stage", parent(t, all, from).Name, kind)
				acquires[from.SpanContext.SpanID().String()] = true
			}
			assert.Len(t, acquires, 3, "each task has an acquire of its own")
			wait, whole := one(t, all, "queue wait"), one(t, all, "stage")
			assert.False(t, wait.StartTime.Before(whole.StartTime))
			assert.True(t, wait.EndTime.After(wait.StartTime))
			assert.False(t, whole.EndTime.Before(wait.EndTime))

			execute := one(t, all, "execute").SpanContext
			envs, ok := d.seen.Load("one")
			require.True(t, ok)
			assert.Equal(t, "00-"+execute.TraceID().String()+"-"+execute.SpanID().String()+"-01", envs.(map[string]string)["TRACEPARENT"])
			assert.Contains(t, log.String(), `"trace_id":"0af7651916cd43dd8448eb211c80319c","span_id":"`+execute.SpanID().String()+`"`)

			text, err := json.Marshal(all)
			require.NoError(t, err)
			assert.NotContains(t, string(text), fakeSecret)
			assert.NotContains(t, log.String(), fakeSecret)
		})
	}
}

// Rule L3: a manager that records nothing passes the submitter's trace on, and a delegate that
// records nothing passes the manager's trace on to its steps.
func TestATracePassesThroughParticipantsThatDoNotRecord(t *testing.T) {
	t.Parallel()
	m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}})
	require.NoError(t, err)
	srv := httptest.NewServer(m)
	t.Cleanup(func() {
		assert.NoError(t, m.Close())
		srv.Close()
	})
	exported := newSpans()
	d := &remembering{counting: newCounting()}
	tracedDelegate(t, srv.URL, exported, zerolog.Nop(), d, client.V1)
	submitStage(t, srv.URL, callers, tracedStage)
	all := exported.await(t, "init", "execute", "cleanup")
	assert.Equal(t, "b7ad6b7169203331", one(t, all, "execute").Parent.SpanID().String())
	_, err = m.WaitStage(t.Context(), account, "s1")
	require.NoError(t, err)
}

// Rule L3: with a manager without traces, our delegate begins a trace for each task.
func TestAForeignManagerNeedsNoTraces(t *testing.T) {
	t.Parallel()
	exported := newSpans()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported))
	t.Cleanup(func() { assert.NoError(t, tp.Shutdown(context.WithoutCancel(t.Context()))) })
	m := newForeignManager(t, false, []*foreignTask{{id: "t1", taskType: "hello", data: `{"a":1}`}})
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, account, secret)
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) })
	p := poller.New(c, router.New(router.RouteMap{"hello": hello}, router.WithMiddleware(tracing.Middleware(tp))))
	info, err := p.Register(t.Context())
	require.NoError(t, err)
	over := make(chan error, 1)
	go func() { over <- p.Poll(context.WithoutCancel(t.Context()), 1, info.ID, 10*time.Millisecond) }()
	span := one(t, exported.await(t, "task"), "task")
	assert.False(t, span.Parent.IsValid())
	assert.True(t, span.SpanContext.IsValid())
	require.NoError(t, p.Shutdown(t.Context()))
	require.NoError(t, <-over)
}

// Rule L3: a third-party delegate gets a task with two additional members and no other
// difference. Without a trace it gets none.
func TestAForeignDelegateSeesTwoMembersMore(t *testing.T) {
	t.Parallel()
	for name, traceparent := range map[string]string{"a trace": callers, "no trace": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}})
			require.NoError(t, err)
			srv := httptest.NewServer(m)
			t.Cleanup(func() {
				assert.NoError(t, m.Close())
				srv.Close()
			})
			submitStage(t, srv.URL, traceparent, `{"id":"s1","steps":[{}]}`)
			c, err := client.New(srv.URL, account, secret)
			require.NoError(t, err)
			t.Cleanup(c.CloseIdleConnections)
			d, err := c.Register(t.Context(), &client.Registration{DelegateName: "plain"})
			require.NoError(t, err)
			pending, err := c.Poll(t.Context(), d.ID, client.PollQuery{})
			require.NoError(t, err)
			require.Len(t, pending.Events, 1)
			got, err := c.Acquire(t.Context(), d.ID, pending.Events[0])
			require.NoError(t, err)
			assert.Equal(t, traceparent, string(got.Traceparent))
			b, err := json.Marshal(got)
			require.NoError(t, err)
			assert.Equal(t, traceparent != "", bytes.Contains(b, []byte("traceparent")))
			assert.NotContains(t, string(b), "tracestate")
			var in stage.InitRequest
			require.NoError(t, json.Unmarshal(got.Data, &in))
			assert.Equal(t, "s1", in.TransactionID())
		})
	}
}

// safeBuffer is a log that several goroutines write to.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
