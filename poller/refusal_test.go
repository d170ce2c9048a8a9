package poller_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/clientfaults"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// C3: an answer that the manager refuses is given up and counted, and delays
// nothing. Text that is not JSON arrives as text.
func TestAnAnswerThatTheManagerRefusesIsGivenUp(t *testing.T) {
	t.Parallel()
	srv := server(t)
	d := start(t, srv, router.RouteMap{"echo": echo, "text": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "plain text") })}, poller.WithGrace(poller.Unbounded))
	refused := srv.Inject(clientfaults.Fault{Call: "respond", TaskID: "refused", Kind: clientfaults.AnswerStatus, Status: 400})
	srv.Submit(&task.Task{ID: "refused", Type: "echo", Data: json.RawMessage(`1`)})
	require.NoError(t, refused.Wait(within(t), 1))
	require.Eventually(t, func() bool { return d.Stats().Undelivered == 1 }, 20*time.Second, time.Millisecond)
	assert.JSONEq(t, `"plain text"`, string(wait(t, submit(srv, "text", `{}`)).Data))
	d.stop()
	receive(t, d.over)
	assert.Equal(t, 1, refused.Count())
}

// C3: an answer is tried until the deadline of its task has passed, and at least
// for a minute.
func TestAnAnswerIsTriedUntilItsTasksDeadline(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]time.Duration{
		10 * time.Minute: 10 * time.Minute,
		time.Second:      time.Minute,
	} {
		t.Run(timeout.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				m := &script{
					onPoll: lists(task.Event{TaskID: "one", TaskType: "echo"}),
					onAcquire: func(_ context.Context, e task.Event) (*task.Task, error) {
						return &task.Task{ID: e.TaskID, Type: e.TaskType, Timeout: task.Millis(timeout.Milliseconds())}, nil
					},
					onRespond: func(ctx context.Context, _ *task.Response) error {
						<-ctx.Done() // the client retries as long as it may
						return &client.Error{Status: 503}
					},
				}
				p, stop, over := m.polling(t, router.RouteMap{"echo": echo})
				after(want - time.Second - time.Since(begun))
				assert.Zero(t, p.Stats().Undelivered)
				after(time.Minute)
				assert.EqualValues(t, 1, p.Stats().Undelivered)
				stop()
				require.NoError(t, <-over)
			})
		})
	}
}
