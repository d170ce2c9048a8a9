package poller_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// A manager that was started anew knows neither the delegate nor the task: what
// belongs to the task can go. A 404 from a manager that knows the delegate says
// nothing of the kind.
func TestATaskThatItsManagerHasForgottenIsAnOrphan(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]bool{"forgotten": true, "known": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := server(t)
			g, orphans := newGate(), make(chan string, 1)
			d := start(t, srv, router.RouteMap{executeTask: g, "echo": echo},
				poller.WithOrphan(func(_ context.Context, tk *task.Task) { orphans <- tk.ID }))
			sub := submit(srv, executeTask, `{}`)
			receive(t, g.entered)
			gone := srv.Inject(clienttest.Fault{Call: clienttest.CallRespond, TaskID: sub.ID, Kind: clienttest.AnswerStatus, Status: 404})
			if forget {
				srv.Forget(d.id)
				assert.Equal(t, task.OK, wait(t, submit(srv, "echo", `1`)).Code, "it has registered again")
			}
			close(g.let)
			assert.NoError(t, gone.Wait(within(t), 1))
			if forget {
				assert.Equal(t, sub.ID, receive(t, orphans))
				return
			}
			assert.Equal(t, task.OK, wait(t, submit(srv, "echo", `1`)).Code)
			assert.Empty(t, orphans)
		})
	}
}
