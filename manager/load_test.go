package manager_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// wall makes a server use the wall clock.
func wall(c *manager.Config) { c.Clock = nil }

// worker is a delegate with held polls. It loses every twentieth answer of the
// manager and repeats the call.
type worker struct {
	*server
	id      string
	open    sync.Map // stages between init and cleanup
	stages  atomic.Int64
	most    atomic.Int64
	seen    sync.Map
	running sync.WaitGroup
}

func (w *worker) run(ctx context.Context) {
	defer w.running.Wait()
	since := ""
	for {
		r, err := w.do(ctx, "GET", "/api/agent/delegates/"+w.id+"/task-events?accountId=acc&wait=60&since="+since, "")
		if err != nil {
			return
		}
		since = r.header.Get("Dlite-Cursor")
		var l list
		if json.Unmarshal([]byte(r.body), &l) != nil {
			w.t.Errorf("poll: %d %s", r.status, r.body)
			return
		}
		for _, e := range l.Events {
			if _, again := w.seen.LoadOrStore(e.TaskID, true); !again {
				w.running.Go(func() { w.work(ctx, e.TaskID) })
			}
		}
	}
}

func (w *worker) work(ctx context.Context, id string) {
	path := "/api/agent/v2/delegates/" + w.id + "/tasks/" + id + "/acquire?accountId=acc"
	r, err := w.do(ctx, "PUT", path, "")
	if err == nil && rand.IntN(20) == 0 {
		r, err = w.do(ctx, "PUT", path, "")
	}
	if err != nil || r.status == 204 {
		return
	}
	var t struct {
		Type string
		Data struct {
			Group string `json:"group_id"`
		}
	}
	if err := json.Unmarshal([]byte(r.body), &t); err != nil {
		w.t.Errorf("acquire: %d %s", r.status, r.body)
		return
	}
	_, open := w.open.LoadOrStore(t.Data.Group, true)
	assert.Equal(w.t, t.Type != initTask, open, "%s of %s", t.Type, t.Data.Group)
	switch t.Type {
	case initTask:
		if n := w.stages.Add(1); n > w.most.Load() {
			w.most.Store(n)
		}
	case cleanupTask:
		w.open.Delete(t.Data.Group)
		w.stages.Add(-1) // before the answer, which frees the slot
	}
	for range 1 + rand.IntN(20)/19 {
		_, _ = w.do(ctx, "POST", "/api/agent/v2/tasks/"+id+"/delegates/"+w.id+"?accountId=acc", succeeded)
	}
}

// Rules Q1 and Q4: many stages run through two delegates over HTTP. Each ends once
// with success, and no slot is exceeded or lost.
func TestManyStagesThroughTwoDelegates(t *testing.T) {
	t.Parallel()
	const stages, slots = 200, 4
	s := start(t, wall)
	s.token = issue(t, fakeSecret, account, wallNow(), 3600e9)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var workers []*worker
	for i := range 2 {
		w := &worker{server: s, id: s.register(fmt.Sprint("d", i), dockerTypes)}
		s.ok("POST", "/api/agent/delegates/register-delegate-capacity/"+w.id+"?accountId=acc",
			fmt.Sprintf(`{"maximumNumberOfBuilds":%d}`, slots), nil)
		workers = append(workers, w)
		wg.Go(func() { w.run(ctx) })
	}
	for i := range stages {
		s.submit(fmt.Sprintf(`{"id":"s%d","steps":[{},{},{}]}`, i))
	}
	for i := range stages {
		st, err := s.m.WaitStage(t.Context(), account, fmt.Sprint("s", i))
		require.NoError(t, err)
		assert.Equal(t, api.Success, st.Status, st.Error)
	}
	for _, d := range s.m.Delegates(account) {
		assert.Zero(t, d.Stages)
		assert.Zero(t, d.Running)
	}
	for _, w := range workers {
		assert.LessOrEqual(t, w.most.Load(), int64(slots))
		assert.Positive(t, w.most.Load())
	}
	cancel()
	wg.Wait()
}

// FuzzBodies sends bodies that any owner of a token could send. The manager refuses
// or accepts them and keeps working.
func FuzzBodies(f *testing.F) {
	for _, body := range []string{
		`{"delegateName":"d","tags":["a"],"supportedTaskTypes":["x"]}`, `{"maximumNumberOfBuilds":-9}`, succeeded, failure,
		`{"code":"RETRY_ON_OTHER_DELEGATE"}`, `{"code":"OK","data":"e30=","error":"x"}`, `{"type":"x","sync":false,"timeout_ms":1}`,
		`{"id":"s","init":{"network":"n"},"steps":[{"data":{"timeout":1e3}}],"cleanup":null}`, `null`, `[]`, `{"data":{"command_execution_status":"RUNNING"}}`,
		`{"init":{"network":{"id":{}}}}`, `{"steps":[{"data":{"timeout":99999999999999999}}]}`,
	} {
		for i := range paths {
			f.Add(i, body)
		}
	}
	m, err := manager.New(manager.Config{Accounts: map[string]string{account: fakeSecret}, MaxFinished: 10})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = m.Close() })
	tok := issue(f, fakeSecret, account, wallNow(), 3600e9)
	f.Fuzz(func(t *testing.T, path int, body string) {
		id := "fuzz"
		task, _ := m.SubmitTask(t.Context(), account, manager.TaskRequest{Task: custom})
		path = ((path % len(paths)) + len(paths)) % len(paths)
		r := post(t, m, tok, fmt.Sprintf(paths[path], id, task.ID), body)
		if r.Code >= 500 {
			t.Errorf("%d %s", r.Code, r.Body)
		}
		if !json.Valid(r.Body.Bytes()) && r.Code != http.StatusNoContent {
			t.Errorf("not JSON: %s", r.Body)
		}
		for _, s := range m.Stages(account) {
			_, _ = m.AbortStage(t.Context(), account, s.ID)
		}
		_, _ = m.AbortTask(t.Context(), account, task.ID)
		for _, d := range m.Delegates(account) {
			post(t, m, tok, "/api/agent/delegates/unregister?accountId=acc", `{"delegateId":"`+d.ID+`"}`)
		}
	})
}

// paths have verbs for a delegate's id and a task's id.
var paths = []string{
	"/api/agent/delegates/register?accountId=acc&x=%s%s",
	"/api/agent/delegates/heartbeat-with-polling?accountId=acc&x=%s%s",
	"/api/agent/delegates/unregister?accountId=acc&x=%s%s",
	"/api/agent/delegates/register-delegate-capacity/%s?accountId=acc&x=%s",
	"/api/agent/v2/tasks/%[2]s/delegates/%[1]s?accountId=acc",
	"/api/executions/%[2]s/response?accountId=acc&delegateId=%[1]s",
	"/api/executions/%[2]s/task-response?accountId=acc&runnerId=%[1]s",
	"/api/stages?accountId=acc&x=%s%s",
	"/api/tasks?accountId=acc&x=%s%s",
}

func post(t testing.TB, h http.Handler, tok, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, reader(body))
	r.Header.Set("Authorization", "Delegate "+tok)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
