package transaction_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// lasting is a fakeDriver whose steps another process can follow.
type lasting struct {
	*fakeDriver
	onReattach func(ctx context.Context, s *driver.Step, out io.Writer, begun []driver.Resource) (*driver.Result, error)
}

func (w *lasting) Reattach(
	ctx context.Context, _ *driver.Environment, s *driver.Step, out io.Writer, _ driver.Ledger, begun []driver.Resource,
) (*driver.Result, error) {
	return w.onReattach(ctx, s, out, begun)
}

// life runs the processes of a delegate one after the other, with one infrastructure.
type life struct {
	t      *testing.T
	w      *lasting
	ledger string
	memory string
	dead   map[*stages]bool
}

func newLife(t *testing.T) *life {
	t.Helper()
	memory, err := os.MkdirTemp("/dev/shm", "dlite-resume-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(memory) })
	l := &life{t: t, w: &lasting{fakeDriver: newFakeDriver()}, ledger: t.TempDir(), memory: memory, dead: map[*stages]bool{}}
	l.w.onReattach = func(context.Context, *driver.Step, io.Writer, []driver.Resource) (*driver.Result, error) {
		return nil, driver.ErrLost
	}
	return l
}

// process starts the delegate. kill ends it as kill -9 does.
func (l *life) process(opts ...transaction.Option) *stages {
	l.t.Helper()
	s := unmanagedStages(l.t, l.w.fakeDriver, l.ledger, opts...)
	s.Stages = transaction.New(l.w, append([]transaction.Option{
		transaction.WithLedger(l.ledger), transaction.WithSlots(s.slots), transaction.WithLog(s.logs.open),
		transaction.WithResume(l.memory), transaction.WithInFlight(0),
		transaction.WithInfra(transaction.Local, transaction.VM),
	}, opts...)...)
	require.NoError(l.t, s.Recover(l.t.Context()))
	l.t.Cleanup(func() {
		if !l.dead[s] {
			_ = s.Close(context.Background()) // a test that needs the error closes the stages itself
		}
	})
	return s
}

func (l *life) kill(s *stages) {
	l.t.Helper()
	l.dead[s] = true
	require.NoError(l.t, s.Crash())
}

// notes returns the files in memory.
func (l *life) notes() []string {
	l.t.Helper()
	paths, err := filepath.Glob(filepath.Join(l.memory, "*", "*"))
	require.NoError(l.t, err)
	return paths
}

// give sends a task to the handler of its type.
func give(s *stages, id, typ string, data any) *task.Response {
	b, err := json.Marshal(data)
	require.NoError(s.t, err)
	r, _ := task.Serve(s.t.Context(), s.Routes()[typ], &task.Task{ID: id, Type: typ, Data: b})
	return r
}

func step(id string) stage.ExecuteRequest {
	return stage.ExecuteRequest{GroupID: "tx", Step: stage.Step{ID: id, LogKey: id}}
}

func receive[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "nothing arrived in time")
	}
	return v
}
