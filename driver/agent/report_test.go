package agent_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/agent"
)

// managerStub is the part of a manager that receives reports. Its first answers are errors.
type managerStub struct {
	mu       sync.Mutex
	failures int
	got      []string
	came     chan struct{}
}

func (m *managerStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failures > 0 {
		m.failures--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	m.got = append(m.got, fmt.Sprintf("%s %s %s %s", r.Method, r.URL, r.Header.Get("Authorization"), b))
	m.came <- struct{}{}
}

// docs/protocol.md, section 1: the agent reports the end of a distributed step to the path in
// the task, and repeats the report until the manager accepts it.
func TestAStepsEndIsReportedToTheManager(t *testing.T) {
	t.Parallel()
	m := &managerStub{failures: 2, came: make(chan struct{}, 10)}
	server := httptest.NewServer(m)
	defer server.Close()
	f := newAgent(t, agent.Config{})
	f.setup(`,"secrets":["visibly-fake-secret"]`)
	for i, c := range []struct{ script, status, want string }{
		{
			`echo A=1 >> $DRONE_OUTPUT; echo B=visibly-fake-secret >> $DRONE_OUTPUT`, ``,
			`POST /p/api/agent/v2/tasks/T%2F1/delegates/D?accountId=A Delegate visibly-fake-token {"id":"","type":"DLITE_CI_VM_EXECUTE_TASK_V2","code":"OK",` +
				`"data":{"command_execution_status":"SUCCESS","output_vars":{"A":"1","B":"******"},"outputs":[{"key":"A","value":"1","type":"STRING"},{"key":"B","value":"******","type":"STRING"}]}}`,
		},
		{
			`exit 3`, `,"runner_response":true,"task_status_v2":true`,
			`POST /p/api/executions/T%2F1/response?accountId=A&delegateId=D Delegate visibly-fake-token {"id":"T/1","type":"DLITE_CI_VM_EXECUTE_TASK_V2","code":"FAILED","error":"exit code 3",` +
				`"data":"BASE64{"command_execution_status":"FAILURE","error_message":"exit code 3","exit_code":3}"}`,
		},
		{
			`sleep 600`, `,"task_status_v2":true`,
			`POST /p/api/executions/T%2F1/task-response?runnerId=D&accountId=A Delegate visibly-fake-token {"id":"T/1","type":"DLITE_CI_VM_EXECUTE_TASK_V2","code":"TIMEOUT","error":"E",` +
				`"data":"BASE64{"command_execution_status":"TIMEOUT","error_message":"E"}"}`,
		},
	} {
		f.ok("/start_step", step(fmt.Sprint("s", i), c.script, fmt.Sprintf(`,"timeout":1,"stage_runtime_id":"sr","step_status":{"endpoint":"%s/p",
			"token":"visibly-fake-token","account_id":"A","delegate_id":"D","task_id":"T/1"%s}`, server.URL, c.status)))
		<-m.came
		m.mu.Lock()
		got := m.got[len(m.got)-1]
		m.mu.Unlock()
		assert.Equal(t, c.want, readable(t, got))
	}
	f.poll("s0") // an agent of this package answers polls too
	// without a stage_runtime_id the driver polls
	f.ok("/start_step", step("polled", "true", fmt.Sprintf(`,"step_status":{"endpoint":%q,"task_id":"T"}`, server.URL)))
	f.poll("polled")
	f.ok("/destroy", "") // waits for reports
	assert.Len(t, m.got, 3)
}

// readable decodes the base64 in a report. It replaces the text of an error that is not the
// end of a process by E.
func readable(t *testing.T, report string) string {
	t.Helper()
	head, body := cutAt(report, "{")
	var fields struct {
		ID    string `json:"id"`
		Type  string `json:"type"`
		Code  string `json:"code"`
		Error string `json:"error"`
		Data  json.RawMessage
	}
	require.NoError(t, json.Unmarshal([]byte(body), &fields))
	var inner []byte
	if json.Unmarshal(fields.Data, &inner) != nil {
		return report
	}
	text := string(inner)
	if fields.Code == "TIMEOUT" {
		require.Contains(t, text, "its time-out of 1s is over")
		require.Contains(t, fields.Error, "its time-out of 1s is over")
		fields.Error, text = "E", `{"command_execution_status":"TIMEOUT","error_message":"E"}`
	}
	return head + fmt.Sprintf(`{"id":%q,"type":%q,"code":%q,"error":%q,"data":"BASE64%s"}`, fields.ID, fields.Type, fields.Code, fields.Error, text)
}

func cutAt(s, sep string) (head, rest string) {
	for i := range s {
		if s[i:i+1] == sep {
			return s[:i], s[i:]
		}
	}
	return s, ""
}
