package endtoend_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// foreignTask is a task of a third-party manager: its JSON payload, and the tasks that must be
// answered before it is listed.
type foreignTask struct {
	id, taskType, data string
	after              []string
	timeout            int
	runner             bool   // requires the runner's form of the answer (v1)
	refuse             string // how an acquire is refused: "204" or "empty"
}

// foreignManager is a third-party manager, written from docs/protocol.md sections 1 and 2
// alone. It lists every task in every poll, twice, and also after the answer. It reports an
// empty list in four ways. It accepts every acquire and knows no extension.
type foreignManager struct {
	t        *testing.T
	v2       bool
	tasks    []*foreignTask
	most     int // maximum size of an answer in bytes
	finished chan struct{}

	mu       sync.Mutex
	calls    map[string]int
	acquired map[string]int
	answered map[string][]string
	after    int // polls since the last answer
}

func newForeignManager(t *testing.T, v2 bool, tasks []*foreignTask) *foreignManager {
	return &foreignManager{
		t: t, v2: v2, tasks: tasks, most: 4 << 10, finished: make(chan struct{}),
		calls: map[string]int{}, acquired: map[string]int{}, answered: map[string][]string{},
	}
}

func (m *foreignManager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Delegate ") || r.URL.Query().Get("accountId") != account {
		m.t.Errorf("%s %s carries no token or account", r.Method, r.URL)
	}
	body, _ := io.ReadAll(r.Body)
	p := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/"), "/")
	switch {
	case strings.HasSuffix(r.URL.Path, "/delegates/register"):
		m.calls["register"]++
		_, _ = io.WriteString(w, `{"metaData":{},"resource":{"delegateId":"d-1","other":null},"responseMessages":[]}`)
	case strings.HasSuffix(r.URL.Path, "/heartbeat-with-polling"):
		m.calls["heartbeat"]++
		_, _ = io.WriteString(w, `not JSON at all`)
	case strings.HasSuffix(r.URL.Path, "/delegates/unregister"):
		m.calls["unregister"]++
		w.WriteHeader(http.StatusNoContent)
	case strings.Contains(r.URL.Path, "/register-delegate-capacity/"):
		m.calls["capacity "+string(body)]++
	case !m.v2 && r.URL.Path == "/api/agent/delegates/d-1/task-events", m.v2 && r.URL.Path == "/api/executions/d-1/runner-events":
		m.poll(w)
	case !m.v2 && r.Method == http.MethodPut && len(p) == 7: // agent/v2/delegates/D/tasks/T/acquire
		m.acquire(w, p[5])
	case m.v2 && r.Method == http.MethodGet && len(p) == 3 && p[2] == "request": // executions/T/request
		m.acquire(w, p[1])
	case !m.v2 && r.Method == http.MethodPost && len(p) == 6: // agent/v2/tasks/T/delegates/D
		m.answer(w, p[3], "legacy", body)
	case !m.v2 && len(p) == 3 && p[2] == "response": // executions/T/response
		m.answer(w, p[1], "runner", body)
	case m.v2 && len(p) == 3 && p[2] == "task-response":
		m.answer(w, p[1], "v2", body)
	default:
		m.t.Errorf("no such call: %s %s", r.Method, r.URL)
		w.WriteHeader(http.StatusNotFound)
	}
}

func (m *foreignManager) poll(w http.ResponseWriter) {
	m.calls["poll"]++
	name, id := "delegateTaskEvents", "delegateTaskId"
	if m.v2 {
		name, id = "delegateRunnerEvents", "taskId"
	}
	if m.done() {
		if m.after++; m.after == 20 {
			close(m.finished)
		}
	}
	switch m.calls["poll"] % 5 {
	case 1:
		w.WriteHeader(http.StatusNoContent)
		return
	case 2:
		_, _ = io.WriteString(w, "null")
		return
	case 3:
		_, _ = fmt.Fprintf(w, `{%q:null}`, name)
		return
	}
	events := []map[string]any{}
	for _, t := range m.tasks {
		if !slices.ContainsFunc(t.after, func(id string) bool { return len(m.answered[id]) == 0 }) {
			e := map[string]any{"accountId": account, id: t.id, "taskType": t.taskType, "sync": false, "runnerType": "local", "future": []int{1}}
			events = append(events, e, e)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{name: events})
}

// done reports whether every task that a delegate may acquire is answered.
func (m *foreignManager) done() bool {
	return !slices.ContainsFunc(m.tasks, func(t *foreignTask) bool { return t.refuse == "" && len(m.answered[t.id]) == 0 })
}

func (m *foreignManager) acquire(w http.ResponseWriter, id string) {
	m.acquired[id]++
	t := m.tasks[slices.IndexFunc(m.tasks, func(t *foreignTask) bool { return t.id == id })]
	switch {
	case t.refuse == "204":
		w.WriteHeader(http.StatusNoContent)
	case t.refuse == "empty":
	case m.v2:
		_, _ = fmt.Fprintf(w, `{"requests":[{"account":%q,"id":%q,"secrets":null,"task":{"id":%q,"type":%q,"timeout":%d,"data":%q,"future":1}}]}`,
			account, id, id, t.taskType, t.timeout, base64.StdEncoding.EncodeToString([]byte(t.data)))
	default:
		_, _ = fmt.Fprintf(w, `{"id":%q,"type":%q,"data":%s,"async":true,"timeout":%d,"runnerResponse":%t,"logging":null,"capabilities":[],"future":1}`,
			id, t.taskType, t.data, t.timeout, t.runner)
	}
}

// answer accepts an answer only in the form that the task requires.
func (m *foreignManager) answer(w http.ResponseWriter, id, form string, body []byte) {
	if len(body) > m.most {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	var in struct {
		ID, Type, Code string
		Data           json.RawMessage
	}
	if err := json.Unmarshal(body, &in); err != nil || in.ID != id {
		m.t.Errorf("an answer to %s: %s", id, body)
	}
	if form != "legacy" {
		var plain []byte
		if err := json.Unmarshal(in.Data, &plain); err != nil {
			m.t.Errorf("the data is not base64: %s", body)
		}
		in.Data = plain
	}
	m.answered[id] = append(m.answered[id], form+" "+in.Code+" "+string(in.Data))
	w.WriteHeader(http.StatusNoContent)
}

// script returns a stage of three steps, one of which fails, and single tasks.
func script(init, execute, cleanup string) []*foreignTask {
	return []*foreignTask{
		{id: "echo", taskType: "echo", data: `{"n":12345678901234567890}`},
		{id: "huge", taskType: "huge", data: `null`},
		{id: "unrouted", taskType: "exotic", data: `{}`},
		{id: "late", taskType: "late", data: `{}`, timeout: 30},
		{id: "theirs", taskType: "echo", data: `{}`, refuse: "204"},
		{id: "theirs-too", taskType: "echo", data: `{}`, refuse: "empty"},
		{id: "init", taskType: init, data: `{"group_id":"g","network":{"id":"n"},"volumes":null,"envs":{"FAIL":"two"}}`},
		{id: "one", taskType: execute, data: step("one"), after: []string{"init"}, runner: true},
		{id: "two", taskType: execute, data: step("two"), after: []string{"init"}},
		{id: "three", taskType: execute, data: step("three"), after: []string{"one", "two"}},
		{id: "cleanup", taskType: cleanup, data: `{"group_id":"g","network":"n","volumes":null,"containers":{"labels":null}}`, after: []string{"three"}},
	}
}

func step(id string) string {
	return fmt.Sprintf(`{"id":%q,"group_id":"g","network":"n","environment":{},"run":{"entrypoint":["sh","-c"],"commands":["true"]},"outputs":null}`, id)
}

// Rules C1, C7, P1, P2, P4, Q1, T1: our delegate serves third-party managers on either
// protocol. It acquires and answers a task that is listed repeatedly only once, in the right
// form and with the right result. It leaves tasks alone that it cannot acquire. It turns an
// answer that is too large into a failure. It leaves no resource.
func TestOurDelegateServesForeignManagers(t *testing.T) {
	t.Parallel()
	const success, exit = `{"command_execution_status":"SUCCESS"}`, `{"command_execution_status":"FAILURE","error_message":"exit code 3","exit_code":3}`
	late := `{"code":504,"command_execution_status":"TIMEOUT","error_message":"too late (context deadline exceeded)","error_msg":"too late"}`
	opened := `{"delegate_meta_info":{"id":"ours","host_name":"ours"},"infra_type":"counting","command_execution_status":"SUCCESS"}`
	for name, c := range map[string]struct {
		protocol client.Protocol
		tasks    []*foreignTask
		want     map[string]string
	}{
		"v1": {client.V1, script("CI_DOCKER_INITIALIZE_TASK", "CI_DOCKER_EXECUTE_TASK", "CI_DOCKER_CLEANUP_TASK"), map[string]string{
			"echo": `legacy OK {"n":12345678901234567890}`, "late": "legacy FAILED " + late,
			"init": "legacy OK " + opened, "one": "runner OK " + success, "two": "legacy OK " + exit, "three": "legacy OK " + success,
			"cleanup": "legacy OK " + success,
		}},
		"v2": {client.V2, script("local_init", "local_execute", "local_cleanup"), map[string]string{
			"echo": `v2 OK {"n":12345678901234567890}`, "late": "v2 FAILED " + late,
			"init": "v2 OK " + opened, "one": "v2 OK " + success, "two": "v2 OK " + exit, "three": "v2 OK " + success,
			"cleanup": "v2 OK " + success,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newForeignManager(t, c.protocol == client.V2, c.tasks)
			srv := httptest.NewServer(m)
			t.Cleanup(srv.Close)
			infra := serveForeign(t, srv.URL, c.protocol, m.finished)
			m.mu.Lock() // the last handler may still be running
			defer m.mu.Unlock()

			assert.Empty(t, infra.exists)
			assert.Equal(t, map[string]int{"g init": 1, "g one": 1, "g two": 1, "g three": 1}, infra.done)
			assert.Equal(t, 1, m.calls["register"])
			assert.Equal(t, 1, m.calls["unregister"])
			assert.Equal(t, 1, m.calls[`capacity {"maximumNumberOfBuilds":2}`])
			assert.Positive(t, m.calls["heartbeat"])
			for _, task := range c.tasks {
				if task.refuse != "" {
					assert.Positive(t, m.acquired[task.id], task.id)
					assert.Empty(t, m.answered[task.id])
					continue
				}
				assert.Equal(t, 1, m.acquired[task.id], "acquires of %s", task.id)
				require.Len(t, m.answered[task.id], 1, task.id)
				switch got := m.answered[task.id][0]; task.id {
				case "huge":
					assert.Contains(t, got, " FAILED ")
					assert.Regexp(t, "413|^v2 FAILED $", got)
				case "unrouted":
					assert.Contains(t, got, " FAILED ")
					assert.Contains(t, got, "exotic")
				default:
					assert.Equal(t, c.want[task.id], got, task.id)
				}
			}
		})
	}
}

// serveForeign runs our delegate until the manager has every answer.
func serveForeign(t *testing.T, url string, protocol client.Protocol, finished <-chan struct{}) *counting {
	t.Helper()
	c, err := client.New(url, account, secret, client.WithProtocol(protocol))
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	infra, slots := newCounting(), capacity.NewSlots(2)
	stages := transaction.New(infra, transaction.WithSlots(slots), transaction.WithLedger(t.TempDir()), transaction.WithDelegate("ours"))
	routes := router.RouteMap{
		"echo": task.HandlerFunc(func(_ context.Context, r *task.Request[json.RawMessage]) (json.RawMessage, error) { return r.Data, nil }),
		"huge": task.HandlerFunc(func(context.Context, *task.Request[any]) (string, error) { return strings.Repeat("x", 10_000), nil }),
		"late": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			task.WriteError(w, task.Errorf(task.Timeout, "too late"))
		}),
	}
	maps.Copy(routes, stages.Routes())
	p := poller.New(c, router.New(routes), poller.WithName("ours"), poller.WithStages(stages), poller.WithHeartbeat(20*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	info, err := p.Register(ctx)
	require.NoError(t, err)
	require.Equal(t, "d-1", info.ID)
	over := make(chan error, 1)
	go func() { over <- p.Poll(ctx, 4, info.ID, 5*time.Millisecond) }()
	select {
	case <-finished:
	case <-ctx.Done():
		t.Error("the manager has not received all that it waits for")
	}
	require.NoError(t, p.Shutdown(ctx))
	require.NoError(t, <-over)
	assert.Zero(t, slots.Used())
	return infra
}
