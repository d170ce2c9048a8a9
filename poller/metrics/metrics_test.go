package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/logger/telemetry"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/poller/metrics"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// fakeSecret is in the payload of a task; no metric may show it.
const fakeSecret = "visibly-fake-secret"

// delegate is a real delegate with its metrics and health endpoints.
type delegate struct {
	*clienttest.Server
	*poller.Poller
	t       *testing.T
	handler http.Handler
	over    chan error
}

func newDelegate(t *testing.T, routes router.RouteMap, opts ...poller.Option) *delegate {
	t.Helper()
	d := &delegate{Server: clienttest.NewServer(), t: t, over: make(chan error, 1)}
	t.Cleanup(d.Close)
	c, err := client.New(d.URL, d.Account, d.Secret, client.WithRetries(client.Retries{Attempts: 1}))
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	tasks := metrics.NewTasks("good", "bad")
	slots := capacity.NewSlots(3)
	d.Poller = poller.New(c, router.New(routes, router.WithMiddleware(router.Metrics(tasks.Observe))),
		append(opts, poller.WithSlots(slots), poller.WithHeartbeat(250*time.Millisecond))...)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(tasks, metrics.Poller(d.Poller, slots),
		metrics.Stages(func() metrics.StageStats { return metrics.StageStats{Open: 2, LogBytes: 1 << 40, LogsIncomplete: 3} }))
	d.handler = telemetry.Handler(registry, metrics.Live(d.Poller), metrics.Ready(d.Poller))
	return d
}

func (d *delegate) poll() {
	d.t.Helper()
	info, err := d.Register(d.t.Context())
	require.NoError(d.t, err)
	go func() { d.over <- d.Poll(context.WithoutCancel(d.t.Context()), 4, info.ID, 10*time.Millisecond) }()
	d.until("/readyz", http.StatusOK, "")
}

// until requests path until the answer has a status and a text.
func (d *delegate) until(path string, status int, text string) (body string) {
	d.t.Helper()
	late := time.After(30 * time.Second)
	for {
		code, body := d.get(path)
		if code == status && strings.Contains(body, text) {
			return body
		}
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			require.FailNow(d.t, "it does not come to that", "%s is %d: %s", path, code, body)
		}
	}
}

func (d *delegate) get(path string) (int, string) {
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, httptest.NewRequestWithContext(d.t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func (d *delegate) series(body, series string) string {
	d.t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(body)
	require.NotNil(d.t, found, "%s in\n%s", series, body)
	return found[1]
}

// L3: the metrics count the work of a delegate, under labels that are known in
// advance, for any input of a manager.
func TestMetricsCountTheTasksOfADelegate(t *testing.T) {
	t.Parallel()
	running, release := make(chan struct{}), make(chan struct{})
	d := newDelegate(t, router.RouteMap{
		"good": task.HandlerFunc(func(context.Context, *task.Request[any]) (any, error) { return nil, nil }),
		"bad": task.HandlerFunc(func(context.Context, *task.Request[any]) (any, error) {
			return nil, errors.New(fakeSecret)
		}),
		"slow": task.HandlerFunc(func(context.Context, *task.Request[any]) (any, error) {
			close(running)
			<-release
			return nil, nil
		}),
		"odd": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(task.CodeHeader, fakeSecret)
			w.WriteHeader(http.StatusOK)
		}),
	}, poller.WithFilter(func(e task.Event) error {
		if e.TaskType == "refused" {
			return errors.New("no")
		}
		return nil
	}))
	d.poll()
	submit := func(typ string, n int) {
		for range n {
			s := d.Submit(&task.Task{Type: typ, Account: fakeSecret, Data: []byte(`"` + fakeSecret + `"`)})
			_, err := s.Wait(t.Context())
			require.NoError(t, err)
		}
	}
	submit("good", 3)
	submit("bad", 2)
	submit("odd", 1)
	d.Submit(&task.Task{Type: "slow"})
	<-running
	ignored := d.SubmitTo(d.Delegates()[0].ID, &task.Task{Type: "refused"})
	unknown := d.SubmitTo(d.Delegates()[0].ID, &task.Task{Type: fakeSecret})
	_, err := unknown.Wait(t.Context())
	require.NoError(t, err)
	for d.Stats().Refused["filter"] == 0 {
		<-time.After(time.Millisecond)
	}

	var body string
	for range 2000 { // the manager has an answer before the poller knows that it has
		if _, body = d.get("/metrics"); d.series(body, `dlite_answers_total{code="FAILED"}`) == "3" {
			break
		}
		<-time.After(time.Millisecond)
	}
	for series, want := range map[string]string{
		`dlite_task_duration_seconds_count{code="OK",type="good"}`:      "3",
		`dlite_task_duration_seconds_count{code="FAILED",type="bad"}`:   "2",
		`dlite_task_duration_seconds_count{code="FAILED",type="other"}`: "1",
		`dlite_task_duration_seconds_count{code="other",type="other"}`:  "1",
		`dlite_tasks_running{kind="standalone"}`:                        "1",
		`dlite_tasks_running{kind="init"}`:                              "0",
		`dlite_tasks_acquired_total`:                                    "8",
		`dlite_answers_total{code="OK"}`:                                "3",
		`dlite_answers_total{code="FAILED"}`:                            "3",
		`dlite_refusals_total{reason="filter"}`:                         "1",
		`dlite_refusals_total{reason="capacity"}`:                       "0",
		`dlite_slots`:                 "3",
		`dlite_slots_used`:            "0",
		`dlite_slots_free`:            "3",
		`dlite_draining`:              "0",
		`dlite_transactions_open`:     "2",
		`dlite_log_bytes_total`:       "1.099511627776e+12",
		`dlite_logs_incomplete_total`: "3",
	} {
		assert.Equal(t, want, d.series(body, series), series)
	}
	assert.NotEqual(t, "0", d.series(body, "dlite_polls_total"))
	assert.NotContains(t, body, fakeSecret)
	d.Abort(ignored.ID)
	close(release)
	require.NoError(t, d.Shutdown(t.Context()))
	require.NoError(t, <-d.over)
}

// L3, P5: a delegate is ready while it is registered and takes stages. A drain
// ends the readiness at once; the process stays alive.
func TestReadinessFollowsTheDelegatesLife(t *testing.T) {
	t.Parallel()
	running, release := make(chan struct{}), make(chan struct{})
	d := newDelegate(t, router.RouteMap{"slow": task.HandlerFunc(func(context.Context, *task.Request[any]) (any, error) {
		close(running)
		<-release
		return nil, nil
	})})
	alive := func() {
		t.Helper()
		code, body := d.get("/healthz")
		assert.Equal(t, http.StatusOK, code, body)
	}
	d.until("/readyz", http.StatusServiceUnavailable, "not registered with the manager yet")
	alive()
	d.poll()
	alive()

	d.Submit(&task.Task{Type: "slow", Data: []byte(`"` + fakeSecret + `"`)})
	<-running
	shut := make(chan error, 1)
	go func() { shut <- d.Shutdown(context.WithoutCancel(t.Context())) }()
	body := d.until("/readyz", http.StatusServiceUnavailable, "draining: no new stages are taken")
	assert.NotContains(t, body, fakeSecret)
	alive()
	close(release)
	require.NoError(t, <-shut)
	require.NoError(t, <-d.over)
	d.until("/readyz", http.StatusServiceUnavailable, "not polling")
	alive()
}

// L3: a delegate whose manager is away is not ready, and still alive.
func TestAManagerThatIsAwayEndsReadinessAlone(t *testing.T) {
	t.Parallel()
	d := newDelegate(t, router.RouteMap{}, poller.WithGrace(0))
	d.poll()
	d.Close()
	d.until("/readyz", http.StatusServiceUnavailable, "the manager has accepted no heartbeat for")
	code, body := d.get("/healthz")
	assert.Equal(t, http.StatusOK, code, body)
	require.NoError(t, d.Shutdown(t.Context()))
	require.NoError(t, <-d.over)
}

// L3: unknown types and codes share one series each.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	tasks := metrics.NewTasks("known")
	for i := range 1000 {
		tasks.Observe(router.Observation{Type: fmt.Sprint("t", i), Code: task.Code(fmt.Sprint("c", i))})
		tasks.Observe(router.Observation{Type: "known", Code: task.Code(fmt.Sprint("c", i))})
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(tasks)
	w := httptest.NewRecorder()
	telemetry.Handler(registry, nil, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	assert.Equal(t, 2*6, strings.Count(w.Body.String(), "_count{"), "two types and six codes")
}
