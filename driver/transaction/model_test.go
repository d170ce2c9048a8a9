package transaction_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Each of these goroutines tries a hundred random schedules this many times: ten thousand in
// all.
const (
	batches = 25
	workers = 4
)

// Rules T1-T5, T7, T8: ten thousand random orders of init, execute, abort, cleanup and crash
// of a few transactions behave like a simple model. Tasks are repeated, late, early, lost and
// concurrent. At the end no resource is left.
func TestAnyOrderOfTasksFollowsTheModel(t *testing.T) {
	t.Parallel()
	for worker := range workers {
		t.Run(fmt.Sprint("worker ", worker), func(t *testing.T) {
			t.Parallel()
			for range batches {
				rapid.Check(t, func(rt *rapid.T) { tryOrders(t, rt) })
			}
		})
	}
}

func tryOrders(t *testing.T, rt *rapid.T) {
	m := newModel(t, rt, rapid.Bool().Draw(rt, "resumes"))
	defer m.end()
	id := rapid.SampledFrom([]string{"a", "b", "c"})
	rt.Repeat(map[string]func(*rapid.T){
		"init":               func(rt *rapid.T) { m.init(rt, id.Draw(rt, "id"), rapid.Bool().Draw(rt, "fails")) },
		"execute":            func(rt *rapid.T) { m.execute(rt, id.Draw(rt, "id")) },
		"abort":              func(rt *rapid.T) { m.abort(rt, id.Draw(rt, "id")) },
		"cleanup":            func(rt *rapid.T) { m.cleanup(rt, id.Draw(rt, "id")) },
		"everything at once": func(rt *rapid.T) { m.everything(rt, id.Draw(rt, "id")) },
		"crash":              m.crash,
		"":                   m.check,
	})
}

// model holds the expected state next to the real one.
type model struct {
	*stages
	rt           *rapid.T
	dir          string
	resumes      bool // transactions survive a crash
	open, closed map[string]bool

	mu    sync.Mutex
	fails map[string]bool // inits that must fail
}

func newModel(t *testing.T, rt *rapid.T, resumes bool) *model {
	// It uses a directory in memory if there is one: other tests cover the disk.
	dir, err := os.MkdirTemp("/dev/shm", "dlite-model-")
	if err != nil {
		dir, err = os.MkdirTemp("", "dlite-model-")
	}
	require.NoError(rt, err)
	m := &model{rt: rt, dir: dir, resumes: resumes && dirInMemory(dir), open: map[string]bool{}, closed: map[string]bool{}, fails: map[string]bool{}}
	w := newFakeDriver()
	w.onInit = func(_ context.Context, env *driver.Environment) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.fails[env.ID] {
			return errors.New("told to fail")
		}
		return nil
	}
	w.onExecute = func(ctx context.Context, _ *driver.Environment, s *driver.Step, _ io.Writer) (*driver.Result, error) {
		if s.ID == "long" {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &driver.Result{}, nil
	}
	m.stages = m.process(t, w)
	return m
}

func (m *model) process(t *testing.T, w *fakeDriver) *stages {
	opts := []transaction.Option{transaction.WithInFlight(0)}
	if m.resumes {
		opts = append(opts, transaction.WithResume(m.dir))
	}
	return unmanagedStages(t, w, m.dir, opts...)
}

func dirInMemory(dir string) bool {
	return strings.HasPrefix(dir, "/dev/shm/") && runtime.GOOS == "linux"
}

func (m *model) end() {
	require.NoError(m.rt, m.Close(context.Background()))
	require.Empty(m.rt, m.fake.left())
	require.Zero(m.rt, m.slots.Used())
	require.Empty(m.rt, m.records())
	notes, err := filepath.Glob(filepath.Join(m.dir, "dlite-*"))
	require.NoError(m.rt, err)
	require.Empty(m.rt, notes)
	require.NoError(m.rt, os.RemoveAll(m.dir))
}

func (m *model) init(rt *rapid.T, id string, fails bool) {
	m.mu.Lock()
	m.fails[id] = fails
	m.mu.Unlock()
	r := m.stages.init(id)
	switch {
	case m.open[id]:
		require.Equal(rt, stage.Success, statusOf(r), "a repeated init")
	case m.closed[id]:
		require.Equal(rt, task.Failed, r.Code, "a late init")
	case fails:
		require.Equal(rt, stage.Failure, statusOf(r))
		m.closed[id] = true
	default:
		require.Equal(rt, stage.Success, statusOf(r))
		m.open[id] = true
	}
}

func (m *model) execute(rt *rapid.T, id string) {
	r := m.stages.execute(id, "step")
	require.Equal(rt, m.open[id], r.Code == task.OK)
}

// abort cancels a step that never ends by itself.
func (m *model) abort(rt *rapid.T, id string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan *task.Response, 1)
	go func() {
		done <- m.run(ctx, "local_execute", stage.ExecuteRequest{GroupID: id, Step: stage.Step{ID: "long"}})
	}()
	cancel()
	if r := <-done; m.open[id] {
		require.NotEqual(rt, stage.Success, statusOf(r))
	} else {
		require.Equal(rt, task.Failed, r.Code)
	}
}

func (m *model) cleanup(rt *rapid.T, id string) {
	require.Equal(rt, stage.Success, statusOf(m.stages.cleanup(id)))
	m.closed[id], m.open[id] = true, false
}

func (m *model) everything(rt *rapid.T, id string) {
	var wg sync.WaitGroup
	wg.Go(func() { m.stages.init(id) })
	wg.Go(func() { m.stages.execute(id, "one") })
	wg.Go(func() { m.stages.execute(id, "long") })
	wg.Go(func() { m.stages.cleanup(id) })
	// The init arrives before the cleanup, or after it and is then refused. The last cleanup
	// ends a step that never ends by itself.
	wg.Go(func() { m.stages.cleanup(id) })
	wg.Wait()
	m.cleanup(rt, id)
}

// crash ends the process and starts another one, which has only the record. If transactions
// survive, it resumes the open ones.
func (m *model) crash(rt *rapid.T) {
	require.NoError(rt, m.Crash())
	m.stages = m.process(m.t, m.fake)
	require.NoError(rt, m.Recover(context.Background()))
	m.closed = map[string]bool{}
	if m.resumes {
		return
	}
	m.open = map[string]bool{}
	require.Empty(rt, m.fake.left())
}

func (m *model) check(rt *rapid.T) {
	n := 0
	for _, is := range m.open {
		if is {
			n++
		}
	}
	require.Equal(rt, n, m.Open())
	require.Equal(rt, n, m.slots.Used())
	require.Len(rt, m.records(), n)
}
