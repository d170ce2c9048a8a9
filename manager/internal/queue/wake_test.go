package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

// watcher is a held poll of a delegate: it has the list of the last look.
type watcher struct {
	*bench
	delegate string
	list     List
}

func (b *bench) watch(delegate string) *watcher {
	l, err := b.List(acc, delegate, "")
	require.NoError(b.t, err)
	return &watcher{b, delegate, l}
}

// woken reports whether the held poll would be answered now, and holds the next poll.
func (w *watcher) woken() bool {
	w.t.(*testing.T).Helper()
	woken := false
	select {
	case <-w.list.Changed:
		woken = true
	default:
	}
	l, err := w.List(acc, w.delegate, w.list.Cursor)
	require.NoError(w.t, err)
	require.Equal(w.t, woken, l.Fresh, "the signal and the cursor agree")
	w.list = l
	return woken
}

// Rule C7: a held poll is answered when the list of the delegate changes by others. Calls of
// the delegate itself are no change: a busy delegate would poll without a pause.
func TestEventsThatWakeAHeldPoll(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{AcquireTimeout: 20 * time.Second, HeartbeatTimeout: time.Hour, AbortGrace: time.Minute})
	d := b.add("d", 1)
	w := b.watch(d)
	beat := func(r Registration) {
		r.ID = d
		require.NoError(t, b.Heartbeat(acc, r))
	}

	b.stage("s", Normal)
	assert.True(t, w.woken(), "a stage was offered")
	b.single("t")
	assert.True(t, w.woken(), "a task was offered")
	b.acquire(d, "s")
	b.acquire(d, "s")
	b.acquire(d, "t")
	beat(Registration{})
	b.complete(d, "s")
	b.complete(d, "t")
	b.stage("waits", Normal)
	assert.False(t, w.woken(), "acquired, answered, a heartbeat, and a stage that it cannot have")

	require.NoError(t, b.Append(acc, "s", &task.Task{ID: "step", Type: "execute", Timeout: 1000}))
	assert.True(t, w.woken(), "the stage's next task")
	b.acquire(d, "step")
	assert.False(t, w.woken())
	require.NoError(t, b.Abort(acc, "step", "because"))
	assert.True(t, w.woken(), "an abort")
	require.NoError(t, b.Abort(acc, "step", "because"))
	b.complete(d, "step")
	assert.False(t, w.woken(), "it has stopped the task")
	require.NoError(t, b.Append(acc, "s", &task.Task{ID: "late", Type: "execute", Timeout: 1000}))
	b.acquire(d, "late")
	assert.True(t, w.woken())
	b.advance(5 * time.Second)
	assert.True(t, w.woken(), "a time-out: it is to stop the task")
	require.NoError(t, b.Release(acc, "s"))
	assert.True(t, w.woken(), "the slot is free for the one that waits")
}

// Rule C7: a withdrawal is a change of the list too.
func TestAWithdrawalWakesAHeldPoll(t *testing.T) {
	t.Parallel()
	for name, withdraw := range map[string]func(b *bench, d string){
		"aborted":                       func(b *bench, _ string) { require.NoError(t, b.Abort(acc, "s", "because")) },
		"the time in the queue is over": func(b *bench, _ string) { b.advance(10 * time.Second) },
		"not taken":                     func(b *bench, _ string) { b.advance(5 * time.Second) },
		"draining":                      func(b *bench, d string) { require.NoError(t, b.Heartbeat(acc, Registration{ID: d, Draining: true})) },
		"less capacity":                 func(b *bench, d string) { require.NoError(t, b.SetCapacity(acc, d, 1)) },
		"no heartbeat":                  func(b *bench, _ string) { b.advance(30 * time.Second) },
		"a step aborted":                func(b *bench, _ string) { require.NoError(t, b.Abort(acc, "step", "because")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Config{AcquireTimeout: 5 * time.Second, HeartbeatTimeout: 20 * time.Second})
			d := b.add("d", 2)
			b.stage("first", Normal)
			b.acquire(d, "first")
			b.complete(d, "first")
			require.NoError(t, b.Append(acc, "first", &task.Task{ID: "step", Type: "execute"}))
			require.NoError(t, b.Submit(acc, &Work{ID: "s", Stage: true, QueueTimeout: 10 * time.Second, Variants: one("s", "init")}))
			require.Equal(t, []string{"step", "s"}, b.offers(d))
			b.add("other", 1) // the withdrawn works go there
			w := b.watch(d)
			withdraw(b, d)
			assert.True(t, w.woken())
		})
	}
}
