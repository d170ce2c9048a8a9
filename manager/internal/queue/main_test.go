package queue

import (
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const acc = "acc"

// bench is a queue whose clock the test advances.
type bench struct {
	*Queue
	t   require.TestingT
	now time.Time
}

func newBench(t require.TestingT, cfg Config) *bench {
	b := &bench{t: t, now: time.Unix(1_700_000_000, 0).UTC()}
	cfg.Now = func() time.Time { return b.now }
	b.Queue = New(cfg)
	return b
}

func (b *bench) advance(d time.Duration) {
	b.now = b.now.Add(d)
	b.Tick(b.now)
}

// add registers a delegate; maxStages 0 is unbounded.
func (b *bench) add(name string, maxStages int, tags ...string) string {
	id := b.Register(acc, Registration{Name: name, Tags: tags})
	require.NoError(b.t, b.SetCapacity(acc, id, maxStages))
	return id
}

// stage submits a stage whose first task has the id of the stage.
func (b *bench) stage(id string, p Priority, selectors ...string) {
	require.NoError(b.t, b.Submit(acc, &Work{
		ID: id, Stage: true, Priority: p, Selectors: selectors, Variants: one(id, "init"),
	}))
}

func (b *bench) single(id string, selectors ...string) {
	require.NoError(b.t, b.Submit(acc, &Work{ID: id, Selectors: selectors, Variants: one(id, "custom")}))
}

func one(id, taskType string) []Variant {
	return []Variant{{Types: []string{taskType}, Task: &task.Task{ID: id, Type: taskType, Timeout: 60_000}}}
}

// heapInUse returns the size of the heap in bytes. It is for tests that are not parallel.
func heapInUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc) //nolint:gosec // far below
}

// offers returns the ids of the tasks that a delegate may acquire.
func (b *bench) offers(d string) []string {
	checkDecisions(b.t, b.accounts[acc])
	l, err := b.List(acc, d, "")
	require.NoError(b.t, err)
	ids := []string{}
	for _, e := range l.Events {
		ids = append(ids, e.TaskID)
	}
	return ids
}

func (b *bench) stops(d string) []string {
	l, err := b.List(acc, d, "")
	require.NoError(b.t, err)
	return l.Aborted
}

func (b *bench) acquire(d, id string) {
	t, err := b.Acquire(acc, d, id)
	require.NoError(b.t, err)
	require.NotNil(b.t, t, "%s may not have %s", d, id)
}

func (b *bench) complete(d, id string) {
	require.NoError(b.t, b.Complete(acc, d, id, Answer{Outcome: Success, Code: task.OK, Data: json.RawMessage("1")}))
}

// holder returns the id of the delegate that has a task, or had it last.
func (b *bench) holder(id string) string {
	s, err := b.Task(acc, id)
	require.NoError(b.t, err)
	return s.Delegate
}

// paused reports whether an account is paused.
func paused(q *Queue, account string) bool {
	defer q.unlock(q.lock())
	return q.find(account).gate.closed
}
