package peers_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/clientfaults"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// Rule Q4: a task does not stay assigned for ever if all answers to its acquire are lost. The
// manager has assigned the task and lists it no more. The delegate repeats the acquire until
// it gets an answer.
func TestAnAcquireWhoseAnswersAreAllLost(t *testing.T) {
	t.Parallel()
	m, err := manager.New(manager.Config{Accounts: map[string]string{benchAccount: benchSecret}})
	require.NoError(t, err)
	faults := clientfaults.New(1)
	srv := httptest.NewServer(faults.Wrap(m))
	t.Cleanup(func() {
		assert.NoError(t, m.Close())
		srv.Close()
	})
	c, err := client.New(srv.URL, benchAccount, benchSecret,
		client.WithRetries(client.Retries{Attempts: 2, MinWait: time.Millisecond, MaxWait: time.Millisecond}))
	require.NoError(t, err)
	defer c.CloseIdleConnections()
	p := poller.New(c, router.New(router.RouteMap{"echo": echo}))
	info, err := p.Register(t.Context())
	require.NoError(t, err)
	faults.Inject(clientfaults.Fault{Call: "acquire", TaskID: "first", Kind: clientfaults.DropResponse, Times: 4}) // two rounds
	over := make(chan error, 1)
	go func() { over <- p.Poll(context.WithoutCancel(t.Context()), 1, info.ID, time.Millisecond) }()
	submit := func(id string) {
		_, err := m.SubmitTask(t.Context(), benchAccount, manager.TaskRequest{Task: task.Task{ID: id, Type: "echo", Data: json.RawMessage(`1`)}})
		require.NoError(t, err)
	}
	submit("first")
	require.Eventually(t, func() bool { return faults.Injected(clientfaults.DropResponse) >= 2 }, 10*time.Second, time.Millisecond)
	submit("second") // the delegate gets a list with this task and without the first
	for _, id := range []string{"second", "first"} {
		got, err := m.WaitTask(within(t), benchAccount, id)
		require.NoError(t, err)
		assert.Equal(t, api.Success, got.Status)
	}
	assert.Equal(t, 4, faults.Injected(clientfaults.DropResponse))
	require.NoError(t, p.Shutdown(within(t)))
	require.NoError(t, receive(t, over))
}
