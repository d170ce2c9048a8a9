package endtoend_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task"
)

// foreignClient is a v1 delegate as a third party may write it from docs/protocol.md section 1
// alone. It polls at an interval without a wait and answers OK whatever happened. It acquires
// tasks that it cannot run and drops them. It runs a task again if the task is still listed
// after the answer. It never reports a capacity or unregisters.
type foreignClient struct {
	t     *testing.T
	url   string
	token string
	id    string
	http  *http.Client

	mu   sync.Mutex
	busy map[string]bool
	ran  map[string]int
}

func startForeignClient(t *testing.T, url string) (f *foreignClient, stop func()) {
	t.Helper()
	key, err := token.ParseSecret(secret)
	require.NoError(t, err)
	tok, err := key.Issue(account, time.Now(), time.Hour)
	require.NoError(t, err)
	transport := &http.Transport{}
	f = &foreignClient{t: t, url: url, token: tok, http: &http.Client{Transport: transport}, busy: map[string]bool{}, ran: map[string]int{}}
	body, status := f.call(t.Context(), http.MethodPost, "/api/agent/delegates/register", f.registration())
	require.Equal(t, 200, status)
	var answer struct{ Resource struct{ DelegateID string } }
	require.NoError(t, json.Unmarshal(body, &answer))
	f.id = answer.Resource.DelegateID
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { f.every(ctx, 50*time.Millisecond, func() { f.heartbeat(ctx) }) })
	all.Go(func() { f.every(ctx, 10*time.Millisecond, func() { f.poll(ctx, &all) }) })
	return f, sync.OnceFunc(func() {
		cancel()
		all.Wait()
		transport.CloseIdleConnections()
	})
}

func (f *foreignClient) every(ctx context.Context, d time.Duration, do func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			do()
		case <-ctx.Done():
			return
		}
	}
}

// registration omits the members that third parties often omit, such as the task types.
func (f *foreignClient) registration() string {
	return fmt.Sprintf(`{"accountId":%q,"delegateName":"foreign","delegateRandomToken":%q,"delegateId":%q,"lastHeartBeat":%d,
		"delegateType":"DOCKER","ng":true,"pollingModeEnabled":true,"heartbeatAsObject":true,"keepAlivePacket":false,"sequenceNum":1}`,
		account, secret, f.id, time.Now().UnixMilli())
}

func (f *foreignClient) call(ctx context.Context, method, path, body string) (answer []byte, status int) {
	req, err := http.NewRequestWithContext(ctx, method, f.url+path+"?accountId="+account+"&delegateInstanceId="+f.id, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Delegate "+f.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.http.Do(req)
	if err != nil {
		return nil, 0
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, 0
	}
	return bytes.TrimSpace(b), resp.StatusCode
}

func (f *foreignClient) heartbeat(ctx context.Context) {
	if _, status := f.call(ctx, http.MethodPost, "/api/agent/delegates/heartbeat-with-polling", f.registration()); status > 299 {
		f.t.Errorf("a heartbeat: %d", status)
	}
}

func (f *foreignClient) poll(ctx context.Context, all *sync.WaitGroup) {
	body, status := f.call(ctx, http.MethodGet, "/api/agent/delegates/"+f.id+"/task-events", "")
	if status == 0 {
		return // the test has ended
	}
	var list struct {
		Events []struct {
			ID string `json:"delegateTaskId"`
		} `json:"delegateTaskEvents"`
	}
	if err := json.Unmarshal(body, &list); err != nil || status != 200 {
		f.t.Errorf("a poll: %d %s", status, body)
	}
	for _, e := range list.Events {
		f.mu.Lock()
		mine := !f.busy[e.ID]
		f.busy[e.ID] = true
		f.mu.Unlock()
		if mine {
			all.Go(func() { f.do(ctx, e.ID) })
		}
	}
}

func (f *foreignClient) do(ctx context.Context, id string) {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.busy, id)
	}()
	body, status := f.call(ctx, http.MethodPut, "/api/agent/v2/delegates/"+f.id+"/tasks/"+id+"/acquire", "")
	var t struct {
		ID, Type string
		Data     struct {
			ID string
		}
	}
	if status != 200 || json.Unmarshal(body, &t) != nil {
		return // a task of another delegate
	}
	f.mu.Lock()
	f.ran[id]++
	f.mu.Unlock()
	data := `{"command_execution_status":"SUCCESS"}`
	switch t.Data.ID {
	case "fails":
		data = `{"command_execution_status":"FAILURE","error_message":"exit status 3","output_vars":null,"outputs":null}`
	case "breaks":
		data = `{"error_msg":"json: cannot unmarshal","code":400}`
	case "late":
		data = `{"command_execution_status":"TIMEOUT","error_message":"it took too long"}`
	case "silent":
		return
	}
	if t.Type == "exotic" {
		return // no route for the task type
	}
	f.call(ctx, http.MethodPost, "/api/agent/v2/tasks/"+id+"/delegates/"+f.id,
		fmt.Sprintf(`{"id":%q,"data":%s,"type":%q,"code":"OK"}`, t.ID, data, t.Type))
}

// Rules C1, Q4, T1: a third-party delegate, written from docs/protocol.md section 1 alone,
// runs our stages to their ends. Their status is right although the delegate always answers
// OK. A task that it drops times out. When the delegate dies its stage fails, and no slot is
// lost.
func TestAForeignClientRunsOurStages(t *testing.T) {
	t.Parallel()
	m, err := manager.New(manager.Config{
		Accounts: map[string]string{account: secret}, HeartbeatTimeout: 3 * time.Second, AnswerGrace: 50 * time.Millisecond,
	})
	require.NoError(t, err)
	srv := httptest.NewServer(m)
	t.Cleanup(func() { assert.NoError(t, m.Close()); srv.Close() })
	f, stop := startForeignClient(t, srv.URL)
	t.Cleanup(stop)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	for steps, want := range map[string]string{
		"fine,good":    "SUCCESS SUCCESS SUCCESS SUCCESS SUCCESS",
		"fails,good":   "FAILURE SUCCESS FAILURE SKIPPED SUCCESS",
		"fine,breaks":  "FAILURE SUCCESS SUCCESS FAILURE SUCCESS",
		"late,good":    "TIMEOUT SUCCESS TIMEOUT SKIPPED SUCCESS",
		"silent,good":  "TIMEOUT SUCCESS TIMEOUT SKIPPED SUCCESS",
		"fine,silent":  "TIMEOUT SUCCESS SUCCESS TIMEOUT SUCCESS",
		"breaks,fails": "FAILURE SUCCESS FAILURE SKIPPED SUCCESS",
	} {
		req := api.StageRequest{ID: strings.ReplaceAll(steps, ",", "-")}
		for id := range strings.SplitSeq(steps, ",") {
			req.Steps = append(req.Steps, api.StepRequest{ID: id, TimeoutMS: 500})
		}
		_, err := m.SubmitStage(ctx, account, req)
		require.NoError(t, err)
		t.Run(steps, func(t *testing.T) {
			st, err := m.WaitStage(ctx, account, req.ID)
			require.NoError(t, err)
			assert.Equal(t, want, fmt.Sprint(st.Status, " ", st.Init.Status, " ", st.Steps[0].Status, " ", st.Steps[1].Status, " ", st.Cleanup.Status))
		})
	}
	exotic, err := m.SubmitTask(ctx, account, manager.TaskRequest{Task: task.Task{Type: "exotic", Timeout: 200}})
	require.NoError(t, err)
	exotic, err = m.WaitTask(ctx, account, exotic.ID)
	require.NoError(t, err)
	assert.Equal(t, api.Timeout, exotic.Status, "a foreign client drops a type without a route, and the manager's own time-out ends it")
	assert.Zero(t, m.Delegates(account)[0].Stages)

	_, err = m.SubmitStage(ctx, account, api.StageRequest{ID: "dies", Steps: []api.StepRequest{{ID: "silent"}}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		st, err := m.Stage(account, "dies")
		return err == nil && st.Steps[0].Status == api.Running
	}, 10*time.Second, time.Millisecond)
	stop() // without unregistering
	dies, err := m.WaitStage(ctx, account, "dies")
	require.NoError(t, err)
	assert.Equal(t, api.Failure, dies.Status)
	assert.Contains(t, dies.Error, `the delegate "foreign" is lost`)
	assert.Equal(t, "LOST", m.Delegates(account)[0].State)
	assert.Zero(t, m.Delegates(account)[0].Stages)
	for id, n := range f.ran {
		assert.Equal(t, 1, n, "%s ran again", id)
	}
}
