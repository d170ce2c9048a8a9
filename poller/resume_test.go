package poller_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// T5: a restarted delegate has its previous id and continues with its stage tasks.
func TestKilledDelegateContinuesWithItsID(t *testing.T) {
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

// P2, T5: a task that must not run twice is answered with the reason.
func TestStandaloneTaskRunsOnlyOnce(t *testing.T) {
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

// P2: an answered task is not answered again after a restart.
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

// T5: if the manager does not know the delegate any more, its stages are cleaned
// up, and its tasks are answered under the previous id.
func TestStagesOfADelegateWithANewIDAreCleanedUp(t *testing.T) {
	t.Parallel()
	srv, dir := server(t), t.TempDir()
	g := newGate()
	first := start(t, srv, router.RouteMap{executeTask: g}, poller.WithState(dir), poller.WithGrace(0))
	submit(srv, executeTask, `{}`)
	receive(t, g.entered)
	left := snapshot(t, dir)
	require.True(t, srv.Forget(first.id))
	unclaimed := make(chan struct{}, 1)
	second := start(t, srv, router.RouteMap{"echo": echo}, poller.WithState(left),
		poller.WithStages(&fakeStages{unclaimed: unclaimed}))
	assert.NotEqual(t, first.id, second.id)
	receive(t, unclaimed)
	assert.Equal(t, task.OK, wait(t, submit(srv, "echo", `1`)).Code)
}

// T5: a task that cannot be acquired while the manager is away is resumed when the
// manager is back.
func TestTaskIsResumedWhenTheManagerIsBack(t *testing.T) {
	t.Parallel()
	srv, dir := server(t), t.TempDir()
	g := newGate()
	start(t, srv, router.RouteMap{executeTask: g}, poller.WithState(dir), poller.WithGrace(0))
	sub := submit(srv, executeTask, `7`)
	receive(t, g.entered)
	away := srv.Inject(clientfaults.Fault{Call: "acquire", TaskID: sub.ID, Kind: clientfaults.AnswerStatus, Status: 503, Times: 20})
	start(t, srv, router.RouteMap{executeTask: echo}, poller.WithState(snapshot(t, dir)))
	require.NoError(t, away.Wait(within(t), 20))
	assert.JSONEq(t, `7`, string(wait(t, sub).Data))
}

// T5: a file that cannot be read does not prevent the others from being resumed.
func TestDamagedStateFileIsSkipped(t *testing.T) {
	t.Parallel()
	srv, dir := server(t), t.TempDir()
	g := newGate()
	start(t, srv, router.RouteMap{executeTask: g}, poller.WithState(dir), poller.WithGrace(0))
	sub := submit(srv, executeTask, `7`)
	receive(t, g.entered)
	left := snapshot(t, dir)
	require.NoError(t, os.WriteFile(left+"/damaged.task", []byte("{"), 0o600))
	// A line that could not be written to its end leaves the lines before it.
	files, err := filepath.Glob(left + "/*.task")
	require.NoError(t, err)
	for _, name := range files {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = f.WriteString("\n{\"event\":{\"TaskID\":\"")
		require.NoError(t, errors.Join(err, f.Close()))
	}
	start(t, srv, router.RouteMap{executeTask: echo}, poller.WithState(left))
	assert.JSONEq(t, `7`, string(wait(t, sub).Data))
}
