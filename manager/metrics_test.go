package manager_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/logger/telemetry"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task"
)

// fakePayload must not appear in any series.
const fakePayload = "visibly-fake-secret"

// watched is a manager with its metrics, logs and spans.
type watched struct {
	*manager.Manager
	t       *testing.T
	handler http.Handler
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	m, err := manager.New(manager.Config{Accounts: map[string]string{account: fakeSecret, "idle": fakeSecret}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m.Metrics())
	return &watched{Manager: m, t: t, handler: telemetry.Handler(registry, m.LiveChecks(), m.ReadyChecks())}
}

func (w *watched) get(path string) (int, string) {
	r := httptest.NewRecorder()
	w.handler.ServeHTTP(r, httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, path, nil))
	return r.Code, r.Body.String()
}

// expect checks series in the result of a scrape.
func (w *watched) expect(want map[string]string) (body string) {
	w.t.Helper()
	code, body := w.get("/metrics")
	require.Equal(w.t, http.StatusOK, code, body)
	for series, value := range want {
		found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(body)
		if assert.NotNil(w.t, found, "%s in\n%s", series, body) {
			assert.Equal(w.t, value, found[1], series)
		}
	}
	return body
}

// Rule L3: metrics count stages and tasks from submission to end, per account.
func TestMetricsCountStagesAndTasks(t *testing.T) {
	t.Parallel()
	m := newWatched(t)
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	_, err := m.SubmitStage(t.Context(), account, api.StageRequest{
		ID: "s1", Selectors: []string{"Linux", " gpu"}, Init: json.RawMessage(`{"envs":{"P":"` + fakePayload + `"}}`),
	})
	require.NoError(t, err)
	for range 2 {
		_, err = m.SubmitTask(t.Context(), account, manager.TaskRequest{
			Task: task.Task{ID: "t1", Type: fakePayload, Data: json.RawMessage(`"` + fakePayload + `"`)},
		})
		require.NoError(t, err, "the second is the same")
	}
	before := m.expect(map[string]string{
		`dlite_manager_submitted_total{account="acc",kind="stage"}`:                       "1",
		`dlite_manager_submitted_total{account="acc",kind="task"}`:                        "1",
		`dlite_manager_submitted_total{account="idle",kind="task"}`:                       "0",
		`dlite_manager_queue_waiting{account="acc",kind="stage",selectors="gpu,linux"}`:   "1",
		`dlite_manager_queue_waiting{account="acc",kind="task",selectors=""}`:             "1",
		`dlite_manager_queue_wait_seconds_count{account="acc",kind="task"}`:               "0",
		`dlite_manager_delegates{account="acc",state="alive"}`:                            "0",
		`dlite_manager_ended_total{account="acc",kind="task",status="success"}`:           "0",
		`dlite_manager_queue_wait_seconds_bucket{account="acc",kind="task",le="28800"}`:   "0",
		`dlite_manager_queue_wait_seconds_bucket{account="idle",kind="stage",le="0.001"}`: "0",
	})
	assert.NotContains(t, before, fakePayload)

	c, err := client.New(srv.URL, account, fakeSecret)
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	d, err := c.Register(t.Context(), &client.Registration{DelegateName: "d", Tags: []string{"linux"}})
	require.NoError(t, err)
	require.NoError(t, c.ReportCapacity(t.Context(), d.ID, 5))
	event := task.Event{TaskID: "t1", TaskType: fakePayload, Account: account}
	got, err := c.Acquire(t.Context(), d.ID, event)
	require.NoError(t, err)
	require.NotNil(t, got)
	m.expect(map[string]string{
		`dlite_manager_queue_wait_seconds_count{account="acc",kind="task"}`:             "1",
		`dlite_manager_queue_wait_seconds_bucket{account="acc",kind="task",le="28800"}`: "1",
		`dlite_manager_tasks_running{account="acc"}`:                                    "1",
		`dlite_manager_delegates{account="acc",state="alive"}`:                          "1",
		`dlite_manager_delegates_unbounded{account="acc"}`:                              "0",
		`dlite_manager_slots{account="acc"}`:                                            "5",
	})
	require.NoError(t, c.Respond(t.Context(), d.ID, got, &task.Response{ID: got.ID, Type: got.Type, Code: task.Failed, Error: assert.AnError.Error()}))
	_, err = m.WaitTask(t.Context(), account, "t1")
	require.NoError(t, err)
	_, err = m.AbortStage(t.Context(), account, "s1")
	require.NoError(t, err)
	after := m.expect(map[string]string{
		`dlite_manager_ended_total{account="acc",kind="task",status="failure"}`:  "1",
		`dlite_manager_ended_total{account="acc",kind="stage",status="aborted"}`: "1",
		`dlite_manager_duration_seconds_count{account="acc",kind="task"}`:        "1",
		`dlite_manager_duration_seconds_count{account="acc",kind="stage"}`:       "0", // it never ran
		`dlite_manager_queue_wait_seconds_count{account="acc",kind="stage"}`:     "0",
		`dlite_manager_tasks_running{account="acc"}`:                             "0",
	})
	assert.NotContains(t, after, "dlite_manager_queue_waiting{")
	assert.NotContains(t, after, fakePayload)
}

// Rule L3: submitters cannot create any number of series, neither at once nor over
// time.
func TestSelectorsMakeABoundedNumberOfSeries(t *testing.T) {
	t.Parallel()
	m := newWatched(t)
	submit := func(selectors ...string) {
		_, err := m.SubmitTask(t.Context(), account, manager.TaskRequest{Task: task.Task{Type: "x"}, Selectors: selectors})
		require.NoError(t, err)
	}
	submit("known")
	m.expect(map[string]string{`dlite_manager_queue_waiting{account="acc",kind="task",selectors="known"}`: "1"})
	for i := range 200 {
		submit(fmt.Sprint("s", i))
	}
	submit(strings.Repeat("long", 40))
	submit("KNOWN")
	body := m.expect(map[string]string{
		`dlite_manager_queue_waiting{account="acc",kind="task",selectors="known"}`: "2",
		`dlite_manager_queue_waiting{account="acc",kind="task",selectors="other"}`: "152",
	})
	assert.Equal(t, 51, strings.Count(body, "dlite_manager_queue_waiting{"))
	assert.Equal(t, 51, strings.Count(body, "dlite_manager_queue_oldest_timestamp_seconds{"))
}

// Rule L3: a closed manager is not ready, but it is alive, so that its process is
// not killed.
func TestReadinessEndsWhenTheManagerCloses(t *testing.T) {
	t.Parallel()
	m := newWatched(t)
	code, body := m.get("/readyz")
	assert.Equal(t, http.StatusOK, code, body)
	require.NoError(t, m.Close())
	code, body = m.get("/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, "the manager is closed")
	code, body = m.get("/healthz")
	assert.Equal(t, http.StatusOK, code, body)
}
