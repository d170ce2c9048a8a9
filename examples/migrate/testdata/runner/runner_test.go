package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wings-software/dlite/client"
	"github.com/wings-software/dlite/delegate"
	"github.com/wings-software/dlite/poller"
	"github.com/wings-software/dlite/router"
	"github.com/wings-software/dlite/task"
)

// newTestCommand has one pool, "linux", with one warm instance of two.
func newTestCommand(t *testing.T) *command {
	t.Helper()
	env := &envConfig{}
	env.Manager.Endpoint, env.Manager.AccountID, env.Manager.Name = "http://127.0.0.1:1", "account", "tester"
	env.Manager.AccountSecret = strings.Repeat("0f", 16)
	env.Manager.TokenExpiry = time.Hour
	env.Pools.Names, env.Pools.Size, env.Pools.Limit, env.Pools.Root = []string{"linux"}, 1, 2, t.TempDir()
	env.Limits.Output, env.Limits.Timeout = 1<<16, 10*time.Second
	c := newCommand(env)
	c.delegateInfo = &poller.DelegateInfo{ID: "d-1", Host: "host-1"}
	if err := c.setUpPools(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.pools.destroyAll(context.Background()) })
	return c
}

// send runs the handler of a task and decodes its answer.
func send(t *testing.T, c *command, typ, data string, into any) int {
	t.Helper()
	body, err := json.Marshal(&client.Task{ID: "task-1", Type: typ, Data: json.RawMessage(data), DelegateInfo: client.DelegateInfo{ID: "d-2"}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	routeMap(c)[typ].ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(string(body))))
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatalf("%s: %v: %s", typ, err, w.Body)
		}
	}
	return w.Code
}

const setupData = `{"setup_vm_request": {"id": "stage-1", "pool_id": "windows,linux", "setup_request":
	{"envs": {"GREETING": "hello"}, "secrets": ["not-a-real-secret"], "files": [{"path": "sub/file", "data": "content"}]}},
	"services": [{"identifier": "idle", "run": ["sleep", "60"]}, {"identifier": "broken", "run": ["/no/such/program"]}]}`

func stepData(id, script string) string {
	b, _ := json.Marshal(script)
	return `{"execute_step_request": {"stage_runtime_id": "stage-1", "start_step_request": {"id": "` + id + `", "environment": {"WHO": "you"},
		"timeout": 5, "output_vars": ["VERSION"], "run": {"entrypoint": ["sh", "-ec"], "commands": [` + string(b) + `]}}}}`
}

func TestAStageRuns(t *testing.T) {
	c := newTestCommand(t)
	var opened vmResponse
	if code := send(t, c, initTask, setupData, &opened); code != 200 || opened.CommandExecutionStatus != success {
		t.Fatalf("init: %d %+v", code, opened)
	}
	if opened.DelegateMetaInfo != (delegateMetaInfo{HostName: "host-1", ID: "d-2"}) {
		t.Errorf("delegate: %+v", opened.DelegateMetaInfo)
	}
	if s := opened.ServiceStatuses; len(s) != 2 || s[0].Status != success || s[1].Status != failure {
		t.Errorf("services: %+v", s)
	}
	if c.metrics.value(`runner_fallbacks_total{pool="linux"}`) != 1 {
		t.Error("the second pool was not counted")
	}
	var step vmResponse
	send(t, c, executeTask, stepData("one", `echo "$GREETING $WHO not-a-real-secret"; cat sub/file; echo VERSION=7 > "$OUTPUT_FILE"`), &step)
	if step.CommandExecutionStatus != success || step.OutputVars["VERSION"] != "7" {
		t.Errorf("step: %+v", step)
	}
	var output struct {
		Lines []string
		Next  int
	}
	send(t, c, logTask, `{"stage_runtime_id": "stage-1", "step_id": "one", "from": 0}`, &output)
	if len(output.Lines) < 1 || output.Lines[0] != "hello you ****" {
		t.Errorf("output: %+v", output)
	}
	var bad vmResponse
	send(t, c, executeTask, stepData("two", "exit 3"), &bad)
	if bad.CommandExecutionStatus != failure || bad.ExitCode != 3 {
		t.Errorf("failed step: %+v", bad)
	}
	var late vmResponse
	send(t, c, executeTask, strings.Replace(stepData("three", "sleep 30"), `"timeout": 5`, `"timeout": 1`, 1), &late)
	if late.CommandExecutionStatus != timeout {
		t.Errorf("late step: %+v", late)
	}
	var ended vmResponse
	send(t, c, cleanupTask, `{"stage_runtime_id": "stage-1"}`, &ended)
	if ended.CommandExecutionStatus != success {
		t.Errorf("cleanup: %+v", ended)
	}
	if left, _ := filepath.Glob(filepath.Join(c.env.Pools.Root, "*")); len(left) != 1 {
		t.Errorf("instances: %v", left)
	}
	send(t, c, executeTask, stepData("four", "true"), &ended)
	if ended.ErrorMessage != errUnknownStage.Error() {
		t.Errorf("step without a stage: %+v", ended)
	}
}

func TestRequestsAreChecked(t *testing.T) {
	c := newTestCommand(t)
	for typ, data := range map[string]string{
		initTask: `{"setup_vm_request": {"id": "x"}}`, executeTask: `{}`, cleanupTask: `{}`, capacityTask: `{}`, logTask: `{"stage_runtime_id": "x"}`,
	} {
		if code := send(t, c, typ, data, nil); code != http.StatusBadRequest {
			t.Errorf("%s: %d", typ, code)
		}
		if code := send(t, c, typ, `7`, nil); code != http.StatusBadRequest {
			t.Errorf("%s with a number: %d", typ, code)
		}
	}
	if code := send(t, c, capacityTask, `{"pool_id": "none"}`, nil); code != http.StatusNotFound {
		t.Errorf("capacity of an unknown pool: %d", code)
	}
	for _, path := range []string{"../file", "/etc/file"} {
		r := &setupRequest{}
		r.SetupVMRequest.ID, r.SetupVMRequest.PoolID = "a", "b"
		r.SetupVMRequest.Setup.Files = []fileSpec{{Path: path}}
		if r.validate() == nil {
			t.Errorf("%s is accepted", path)
		}
	}
}

func TestAPoolHasALimit(t *testing.T) {
	c := newTestCommand(t)
	var answer struct {
		Free int
		Fits bool
	}
	for i, want := range []int{2, 1, 0} {
		send(t, c, capacityTask, `{"id": "x", "pool_id": "linux"}`, &answer)
		if answer.Free != want || answer.Fits != (want > 0) {
			t.Errorf("%+v, want %d", answer, want)
		}
		var opened vmResponse
		send(t, c, initTask, strings.Replace(setupData, "stage-1", "stage-"+string(rune('a'+i)), 1), &opened)
		if (opened.CommandExecutionStatus == success) != (want > 0) {
			t.Errorf("init %d: %+v", i, opened)
		}
	}
	if status := c.pools.status(); len(status) != 1 || strings.Join(status[0].Busy, ",") != "stage-a,stage-b" {
		t.Errorf("%+v", status)
	}
}

func TestAHandlerMayPanic(t *testing.T) {
	c := newTestCommand(t)
	w := httptest.NewRecorder()
	withRecovery(c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oops") })).ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "oops") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestAgentsGetAToken(t *testing.T) {
	c := newTestCommand(t)
	step := &stepSpec{}
	h := &executeHandler{c}
	if err := h.addStatusConfig(&client.Task{ID: "task-1"}, step); err != nil || step.Status != nil {
		t.Errorf("%v %+v", err, step.Status)
	}
	if err := h.addStatusConfig(&client.Task{ID: "task-1", RunnerResponse: true, DelegateInfo: client.DelegateInfo{ID: "d-3"}}, step); err != nil {
		t.Fatal(err)
	}
	if step.Status.DelegateID != "d-3" || step.Status.TaskID != "task-1" || strings.Count(step.Status.Token, ".") != 4 {
		t.Errorf("%+v", step.Status)
	}
}

func TestTheMaintenanceModeIsSwitched(t *testing.T) {
	c := newTestCommand(t)
	r := router.NewRouter(map[string]task.Handler{})
	cl := delegate.New("http://127.0.0.1:1", "account", c.env.Manager.AccountSecret, true, "")
	p := poller.New("account", c.env.Manager.AccountSecret, "tester", nil, cl, r)
	h := Handler(p, c)
	call := func(method, path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Body.String()
	}
	for _, step := range [][3]string{
		{"GET", "/maintenance_mode", disabledStatus}, {"POST", "/maintenance_mode/enable", okStatus}, {"GET", "/maintenance_mode", enabledStatus},
		{"POST", "/maintenance_mode/disable", okStatus}, {"GET", "/maintenance_mode", disabledStatus}, {"GET", "/healthz", okStatus},
	} {
		if got := call(step[0], step[1]); got != step[2] {
			t.Errorf("%s %s: %s", step[0], step[1], got)
		}
	}
	if got := call("GET", "/pools"); !strings.Contains(got, `"linux"`) || !strings.Contains(got, `"idle": 0`) && !strings.Contains(got, `"idle":0`) {
		t.Errorf("pools: %s", got)
	}
	if got := call("GET", "/stages/none"); !strings.Contains(got, errUnknownStage.Error()) {
		t.Errorf("stage: %s", got)
	}
	if got := call("GET", "/metrics"); !strings.Contains(got, `runner_pool_idle{pool="linux"} 0`) {
		t.Errorf("metrics: %s", got)
	}
}

func TestTheConfigurationIsChecked(t *testing.T) {
	valid := map[string]string{"RUNNER_MANAGER_ENDPOINT": "http://x", "RUNNER_ACCOUNT_ID": "a", "RUNNER_ACCOUNT_SECRET": "s", "RUNNER_POOLS": "a, b"}
	with := func(name, value string) func(string) string {
		return func(asked string) string {
			if asked == name {
				return value
			}
			return valid[asked]
		}
	}
	c, err := fromEnviron(with("RUNNER_POLL_INTERVAL", "2s"))
	if err != nil || c.Manager.PollInterval != 2*time.Second || len(c.Pools.Names) != 2 {
		t.Errorf("%+v %v", c, err)
	}
	for name, value := range map[string]string{
		"RUNNER_MANAGER_ENDPOINT": "", "RUNNER_ACCOUNT_ID": " ", "RUNNER_ACCOUNT_SECRET": "", "RUNNER_POOL_SIZE": "9", "RUNNER_PURGE": "soon",
		"RUNNER_SKIP_VERIFY": "perhaps", "RUNNER_OUTPUT": "much", "RUNNER_POOLS": ",",
	} {
		if _, err := fromEnviron(with(name, value)); err == nil {
			t.Errorf("%s=%q is accepted", name, value)
		}
	}
}

func TestOldStagesAreFound(t *testing.T) {
	s := newStageStore()
	now := time.Now()
	s.add(&stage{ID: "old", Created: now.Add(-time.Hour)})
	s.add(&stage{ID: "new", Created: now})
	if list := s.olderThan(now.Add(-time.Minute)); len(list) != 1 || list[0].ID != "old" {
		t.Errorf("%+v", list)
	}
}

func TestALogIsBounded(t *testing.T) {
	s := newLogStore(10)
	l := s.writer("stage", "step")
	for range 5 {
		_, _ = l.Write([]byte("12345\npart"))
	}
	lines, next, ok := s.lines("stage", "step", 0)
	if !ok || next != 2 || lines[1] != "(the output is too long)" {
		t.Errorf("%q %d", lines, next)
	}
	s.remove("stage")
	if _, _, ok := s.lines("stage", "step", 0); ok {
		t.Error("the log is still there")
	}
}
