package manager_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/task"
)

// Rule L3: a single task may name its trace in its members. The same task in another
// trace is the same task.
func TestASingleTaskBringsItsTraceAlong(t *testing.T) {
	t.Parallel()
	const (
		acct   = "traced"
		secret = "00000000000000000000000000000000" // visibly not a real one
		first  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		second = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	)
	m, err := manager.New(manager.Config{Accounts: map[string]string{acct: secret}})
	require.NoError(t, err)
	srv := httptest.NewServer(m)
	t.Cleanup(func() {
		assert.NoError(t, m.Close())
		srv.Close()
	})
	for _, traceparent := range []string{first, second, ""} {
		var req manager.TaskRequest
		require.NoError(t, json.Unmarshal([]byte(`{"id":"t","type":"x","traceparent":"`+traceparent+`"}`), &req))
		_, err := m.SubmitTask(t.Context(), acct, req)
		require.NoError(t, err, "the trace does not make it another task")
	}
	c, err := client.New(srv.URL, acct, secret)
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	d, err := c.Register(t.Context(), &client.Registration{DelegateName: "d"})
	require.NoError(t, err)
	got, err := c.Acquire(t.Context(), d.ID, task.Event{TaskID: "t", TaskType: "x", Account: acct})
	require.NoError(t, err)
	require.NotNil(t, got)
	assert.Equal(t, first, string(got.Traceparent))
}
