package poller_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/internal/clientfaults"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// fakeStages counts the calls of the poller.
type fakeStages struct {
	slots      *capacity.Slots
	mu         sync.Mutex
	calls      []string
	recoverErr error
	closeErr   error
	forgotten  chan string   // receives the ids of forgotten tasks; may be nil
	unclaimed  chan struct{} // receives one element a call; may be nil
}

func (f *fakeStages) called(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, name)
}

func (f *fakeStages) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *fakeStages) Slots() *capacity.Slots {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slots == nil {
		f.slots = capacity.NewSlots(0)
	}
	return f.slots
}

func (f *fakeStages) Recover(context.Context) error {
	f.called("recover")
	return f.recoverErr
}

func (f *fakeStages) Maintain(ctx context.Context, interval time.Duration) {
	f.called("maintain every " + interval.String())
	<-ctx.Done()
	f.called("end of maintain")
}

func (f *fakeStages) CleanUpForgotten(_ context.Context, t *task.Task) { f.forgotten <- t.ID }

func (f *fakeStages) CleanUpUnclaimed(context.Context) { f.unclaimed <- struct{}{} }

func (f *fakeStages) Close(ctx context.Context) error {
	f.called("close")
	if ctx.Err() != nil {
		f.called("with an ended context")
	}
	return f.closeErr
}

// T6: a restarted manager knows neither the delegate nor the task, so the
// transaction of the task is cleaned up. A 404 from a manager that knows the
// delegate does not mean that.
func TestTransactionOfAForgottenTaskIsCleanedUp(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]bool{"forgotten": true, "known": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := server(t)
			g, forgotten := newGate(), make(chan string, 1)
			d := start(t, srv, router.RouteMap{executeTask: g, "echo": echo},
				poller.WithStages(&fakeStages{forgotten: forgotten}))
			sub := submit(srv, executeTask, `{}`)
			receive(t, g.entered)
			gone := srv.Inject(clientfaults.Fault{Call: "respond", TaskID: sub.ID, Kind: clientfaults.AnswerStatus, Status: 404})
			if forget {
				srv.Forget(d.id)
				assert.Equal(t, task.OK, wait(t, submit(srv, "echo", `1`)).Code, "it has registered again")
			}
			close(g.let)
			assert.NoError(t, gone.Wait(within(t), 1))
			if forget {
				assert.Equal(t, sub.ID, receive(t, forgotten))
				return
			}
			assert.Equal(t, task.OK, wait(t, submit(srv, "echo", `1`)).Code)
			assert.Empty(t, forgotten)
		})
	}
}
