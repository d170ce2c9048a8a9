package poller_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/internal/clientfaults"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// snapshot is a delegate's state as kill -9 would leave it now.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	left := t.TempDir()
	require.NoError(t, os.CopyFS(left, os.DirFS(dir)))
	return left
}

// T5: a delegate that is started again is the same one, and goes on with the tasks
// of stages that it had.
func TestAKilledDelegateIsTheSameOneAgain(t *testing.T) {
	t.Parallel()
	srv, dir := server(t), t.TempDir()
	g := newGate()
	first := start(t, srv, router.RouteMap{executeTask: g}, poller.WithState(dir), poller.WithGrace(0))
	sub := submit(srv, executeTask, `{"n":1}`)
	receive(t, g.entered)

	got := make(chan *task.Task, 1)
	second := start(t, srv, router.RouteMap{executeTask: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tk, _ := task.FromContext(r.Context())
		got <- tk
		task.WriteJSON(w, "second", 200)
	})}, poller.WithState(snapshot(t, dir)))
	assert.Equal(t, first.id, second.id)
	again := receive(t, got)
	assert.Equal(t, sub.ID, again.ID)
	assert.JSONEq(t, `{"n":1}`, string(again.Data), "the manager gave it again")
	r := wait(t, sub)
	assert.Equal(t, task.OK, r.Code)
	assert.JSONEq(t, `"second"`, string(r.Data))
}

// P2, T5: what must not be done twice is answered, and says why.
func TestAStandaloneTaskIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	srv, dir := server(t), t.TempDir()
	g := newGate()
	start(t, srv, router.RouteMap{"once": g}, poller.WithState(dir), poller.WithGrace(0))
	sub := submit(srv, "once", `{}`)
	receive(t, g.entered)
	var again atomic.Int32
	start(t, srv, router.RouteMap{"once": task.HandlerFunc(func(context.Context, *task.Request[json.RawMessage]) (any, error) {
		again.Add(1)
		return nil, nil
	})}, poller.WithState(snapshot(t, dir)))
	r := wait(t, sub)
	assert.Equal(t, task.Failed, r.Code)
	assert.Contains(t, r.Error, "the delegate was restarted")
	assert.Zero(t, again.Load())
}

// An answered task is forgotten: its answer is not given again.
func TestAnAnsweredTaskIsForgotten(t *testing.T) {
	t.Parallel()
	srv, dir := server(t), t.TempDir()+"/state"
	d := start(t, srv, router.RouteMap{"echo": echo, executeTask: echo}, poller.WithState(dir))
	for _, typ := range []string{"echo", executeTask} {
		require.Equal(t, task.OK, wait(t, submit(srv, typ, `1`)).Code)
	}
	d.stop()
	<-d.over
	assert.NoDirExists(t, dir, "nothing is owed, and the id is gone after a farewell")
}

// T5: a manager that does not know the delegate any more does not want its stages
// either; its tasks are answered in the old name.
func TestADelegateThatGetsANewIDIsTold(t *testing.T) {
	t.Parallel()
	srv, dir := server(t), t.TempDir()
	g := newGate()
	first := start(t, srv, router.RouteMap{executeTask: g}, poller.WithState(dir), poller.WithGrace(0))
	submit(srv, executeTask, `{}`)
	receive(t, g.entered)
	left := snapshot(t, dir)
	require.True(t, srv.Forget(first.id))
	told := make(chan struct{}, 1)
	second := start(t, srv, router.RouteMap{"echo": echo}, poller.WithState(left),
		poller.WithStages(&fakeStages{unclaimed: told}))
	assert.NotEqual(t, first.id, second.id)
	receive(t, told)
	assert.Equal(t, task.OK, wait(t, submit(srv, "echo", `1`)).Code)
}

// A task that could not be acquired for a while, because the manager was away when
// the delegate came back, is taken up when it is there again.
func TestATaskIsTakenUpWhenTheManagerIsBack(t *testing.T) {
	t.Parallel()
	srv, dir := server(t), t.TempDir()
	g := newGate()
	start(t, srv, router.RouteMap{executeTask: g}, poller.WithState(dir), poller.WithGrace(0))
	sub := submit(srv, executeTask, `7`)
	receive(t, g.entered)
	away := srv.Inject(clientfaults.Fault{Call: clienttest.CallAcquire, TaskID: sub.ID, Kind: clientfaults.AnswerStatus, Status: 503, Times: 20})
	start(t, srv, router.RouteMap{executeTask: echo}, poller.WithState(snapshot(t, dir)))
	require.NoError(t, away.Wait(within(t), 20))
	assert.JSONEq(t, `7`, string(wait(t, sub).Data))
}

// A file that cannot be read keeps nothing else from being taken up.
func TestADamagedStateFileIsPassedOver(t *testing.T) {
	t.Parallel()
	srv, dir := server(t), t.TempDir()
	g := newGate()
	start(t, srv, router.RouteMap{executeTask: g}, poller.WithState(dir), poller.WithGrace(0))
	sub := submit(srv, executeTask, `7`)
	receive(t, g.entered)
	left := snapshot(t, dir)
	require.NoError(t, os.WriteFile(left+"/damaged.task", []byte("{"), 0o600))
	start(t, srv, router.RouteMap{executeTask: echo}, poller.WithState(left))
	assert.JSONEq(t, `7`, string(wait(t, sub).Data))
}
