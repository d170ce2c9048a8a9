package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

// gapped returns a queue that waits for a delegate in each possible way, and with works
// that wait for a time only.
func gapped(t *testing.T, gap time.Duration) (b *bench, d string) {
	t.Helper()
	b = newBench(t, Config{
		Gap: gap, HeartbeatTimeout: time.Minute, AcquireTimeout: 30 * time.Second, AbortGrace: 20 * time.Second,
		Retention: 5 * time.Minute,
	})
	d = b.add("d", 0)
	long := one("runs", "init")
	long[0].Task.Timeout = 90_000
	require.NoError(t, b.Submit(acc, &Work{ID: "runs", Stage: true, RunTimeout: 4 * time.Minute, Variants: long}))
	b.single("aborted")
	b.acquire(d, "runs")
	b.acquire(d, "aborted")
	require.NoError(t, b.Abort(acc, "aborted", "because"))
	b.stage("offered", Normal)
	require.NoError(t, b.Submit(acc, &Work{
		ID: "waits", Stage: true, QueueTimeout: 2 * time.Minute, Selectors: []string{"gpu"}, Variants: one("waits", "init"),
	}))
	require.NoError(t, b.Submit(acc, &Work{ID: "soon late", QueueTimeout: 310 * time.Second, Variants: one("soon late", "custom")}))
	require.NoError(t, b.Submit(acc, &Work{ID: "long", Variants: []Variant{{Task: &task.Task{ID: "long", Timeout: 3_600_000}}}}))
	b.acquire(d, "long")
	b.Events()
	return b, d
}

// happened returns the events as short texts.
func (b *bench) happened() (all []string) {
	names := map[EventKind]string{
		Acquired: "acquired", Requeued: "requeued", Ended: "ended", Expired: "expired", Forgotten: "forgotten",
		Lost: "lost", Returned: "returned",
	}
	for _, e := range b.Events() {
		what := names[e.Kind] + " " + e.Work
		if e.Kind == Ended {
			what += " " + string(e.Result.Outcome)
		}
		all = append(all, what)
	}
	return all
}

// Rule Q4: after a gap, delegates have the whole time again for deadlines in the
// gap or soon after it. Other deadlines do not move.
func TestAfterAGapDelegatesHaveAFreshTime(t *testing.T) {
	t.Parallel()
	b, d := gapped(t, 10*time.Second)
	b.advance(5 * time.Minute)
	assert.Equal(t, []string{"ended waits TIMEOUT", "expired runs"}, b.happened())
	assert.Equal(t, []string{"offered", "soon late"}, b.offers(d))
	assert.Equal(t, Alive, b.Delegates(acc)[0].State)

	keep := func(d time.Duration) {
		for range d / time.Second {
			b.advance(time.Second)
		}
	}
	keep(29 * time.Second)
	assert.Equal(t, []string{"ended soon late TIMEOUT"}, b.happened(), "its time in the queue is over")
	keep(time.Second)
	assert.Equal(t, []string{"requeued offered"}, b.happened())
	require.NoError(t, b.Heartbeat(acc, Registration{ID: d}))
	keep(29 * time.Second)
	assert.Empty(t, b.happened())
	keep(time.Second)
	assert.Equal(t, []string{"ended runs TIMEOUT", "ended aborted ABORTED", "requeued offered"}, b.happened())
	keep(29 * time.Second)
	assert.Empty(t, b.happened())
	keep(time.Second)
	assert.Contains(t, b.happened(), "lost ")
}

// Any operation ends a gap, not only Tick: the heartbeat of one delegate does not make
// the others lost.
func TestAnyOperationEndsAGap(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{Gap: 10 * time.Second})
	first, second := b.add("first", 0), b.add("second", 0)
	b.now = b.now.Add(time.Hour)
	require.NoError(t, b.Heartbeat(acc, Registration{ID: first}))
	b.Tick(b.now)
	b.advance(5 * time.Second)
	require.NoError(t, b.Heartbeat(acc, Registration{ID: second}))
	assert.Equal(t, []string(nil), b.happened())
}

// A clock that goes back does not delay a deadline.
func TestTimeDoesNotGoBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{HeartbeatTimeout: time.Minute})
	d := b.add("d", 1)
	start := b.now
	b.now = start.Add(-time.Hour)
	require.NoError(t, b.Heartbeat(acc, Registration{ID: d}))
	assert.Equal(t, start, b.Delegates(acc)[0].LastHeartbeatSeen)
	b.Tick(start.Add(time.Minute))
	assert.Equal(t, Gone, b.Delegates(acc)[0].State)
}

// Without a gap, and with Gap off, deadlines do not move.
func TestWithoutAGapDeadlinesDoNotMove(t *testing.T) {
	t.Parallel()
	for name, gap := range map[string]time.Duration{"off": 0, "on": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := gapped(t, gap)
			start, ticks := b.now, 0
			var lost time.Time
			for lost.IsZero() { // as a caller does
				at, ok := b.NextDeadline()
				require.True(t, ok)
				if gap > 0 {
					require.LessOrEqual(t, at.Sub(b.now), gap/3+1)
				}
				b.now = at
				b.Tick(at)
				ticks++
				for _, e := range b.Events() {
					if e.Kind == Lost {
						lost = e.At
					}
				}
			}
			assert.Equal(t, time.Minute, lost.Sub(start))
			if gap == 0 {
				assert.Less(t, ticks, 6)
			}
		})
	}
}

// The queue asks for regular operations only while it waits for a delegate. Wake reports
// the first of them.
func TestThePulseIsForDelegatesAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{Gap: 9 * time.Second, HeartbeatTimeout: time.Minute, Retention: time.Hour})
	next := func() time.Duration {
		at, ok := b.NextDeadline()
		require.True(t, ok)
		return at.Sub(b.now)
	}
	require.NoError(t, b.Submit(acc, &Work{ID: "s", Stage: true, QueueTimeout: 2 * time.Minute, Variants: one("s", "init")}))
	<-b.Wake()
	assert.Equal(t, 2*time.Minute, next())
	d := b.add("d", 1)
	<-b.Wake()
	assert.Equal(t, 3*time.Second, next())
	b.acquire(d, "s")
	b.complete(d, "s")
	require.NoError(t, b.AppendDetached(acc, "s", &task.Task{ID: "clean", Type: "cleanup", Timeout: 300_000}))
	b.acquire(d, "clean")
	for range 20 {
		b.advance(3 * time.Second)
	}
	require.Equal(t, Gone, b.Delegates(acc)[0].State)
	assert.Equal(t, 3*time.Second, next(), "the lost delegate has a task")
	b.complete(d, "clean")
	require.NoError(t, b.Release(acc, "s"))
	assert.Greater(t, next(), 50*time.Minute, "the next deadline forgets something")
}
