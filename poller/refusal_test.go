package poller_test

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// PITFALLS "is posted with an empty body, and retried for ever": an answer that
// the manager refuses is given up, counted, and holds nothing back; text that is
// not JSON arrives as the text it is.
func TestAnAnswerThatTheManagerRefusesIsGivenUp(t *testing.T) {
	t.Parallel()
	srv := server(t)
	d := start(t, srv, router.RouteMap{"echo": echo, "text": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "plain text") })}, poller.WithGrace(poller.Unbounded))
	refused := srv.Inject(clienttest.Fault{Call: clienttest.CallRespond, TaskID: "refused", Kind: clienttest.AnswerStatus, Status: 400})
	srv.Submit(&task.Task{ID: "refused", Type: "echo", Data: json.RawMessage(`1`)})
	require.NoError(t, refused.Wait(within(t), 1))
	require.Eventually(t, func() bool { return d.Stats().Undelivered == 1 }, 20*time.Second, time.Millisecond)
	assert.JSONEq(t, `"plain text"`, string(wait(t, submit(srv, "text", `{}`)).Data))
	d.stop()
	receive(t, d.over)
	assert.Equal(t, 1, refused.Count())
}
