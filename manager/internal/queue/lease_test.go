package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

// leases is a queue in which the stage "s" is offered to the delegate d, and another
// delegate is free.
type leases struct {
	*bench
	d, other string
}

// get acquires a task and returns its id, which is empty if Acquire returned no task.
func (l *leases) get(d, id string) (string, error) {
	t, err := l.Acquire(acc, d, id)
	if t == nil {
		return "", err
	}
	return t.ID, err
}

// ends returns how a task has ended, empty if it has not.
func (l *leases) ends(id string) Outcome {
	s, err := l.Task(acc, id)
	require.NoError(l.t, err)
	return s.Result.Outcome
}

func (l *leases) answer(d, id string) error {
	return l.Complete(acc, d, id, Answer{Outcome: Success, Code: task.OK})
}

// silence lets d be lost, and no other delegate.
func (l *leases) silence() {
	for range 3 {
		l.advance(20 * time.Second)
		if l.other != "" {
			require.NoError(l.t, l.Heartbeat(acc, Registration{ID: l.other}))
		}
	}
}

// Rule Q4: the table in doc.go, row by row.
func TestEachRowOfTheTableOfLeasesHolds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]func(t *testing.T, l *leases){
		"an offer is not acquired in time": func(t *testing.T, l *leases) {
			l.advance(30 * time.Second)
			assert.Equal(t, l.other, l.holder("s"))
			got, err := l.get(l.d, "s")
			require.NoError(t, err)
			assert.Empty(t, got, "it is too late")
			require.ErrorIs(t, l.answer(l.d, "s"), ErrNotOwner)
		},
		"acquired again by the same delegate": func(t *testing.T, l *leases) {
			for range 2 {
				got, err := l.get(l.d, "s")
				require.NoError(t, err)
				assert.Equal(t, "s", got)
			}
			acquired := 0
			for _, e := range l.Events() {
				if e.Kind == Acquired {
					acquired++
				}
			}
			assert.Equal(t, 1, acquired)
		},
		"acquired by another delegate": func(t *testing.T, l *leases) {
			for range 2 {
				got, err := l.get(l.other, "s")
				require.NoError(t, err)
				assert.Empty(t, got)
				l.acquire(l.d, "s")
			}
		},
		"acquired after it has ended": func(t *testing.T, l *leases) {
			l.acquire(l.d, "s")
			l.complete(l.d, "s")
			got, err := l.get(l.d, "s")
			require.NoError(t, err)
			assert.Empty(t, got)
		},
		"acquired by an unknown delegate": func(t *testing.T, l *leases) {
			_, err := l.get("unknown", "s")
			require.ErrorIs(t, err, ErrUnknownDelegate)
		},
		"the delegate is lost with an offer": func(t *testing.T, l *leases) {
			require.NoError(t, l.Unregister(acc, l.other))
			l.other = ""
			l.silence()
			assert.Empty(t, l.holder("s"))
			assert.Empty(t, l.ends("s"), "it waits")
		},
		"the delegate is lost with a task": func(t *testing.T, l *leases) {
			l.acquire(l.d, "s")
			l.silence()
			assert.Equal(t, Abandoned, l.ends("s"))
			assert.Equal(t, 1, l.Delegates(acc)[0].Stages, "until the stage is released or retried")
			require.NoError(t, l.Release(acc, "s"))
			assert.Zero(t, l.Delegates(acc)[0].Stages)
		},
		"the lost delegate answers": func(t *testing.T, l *leases) {
			l.acquire(l.d, "s")
			l.silence()
			require.NoError(t, l.answer(l.d, "s"))
			assert.Equal(t, Abandoned, l.ends("s"))
			assert.Equal(t, Gone, l.Delegates(acc)[0].State, "an answer is no heartbeat")
		},
		"the lost delegate returns with running tasks": func(t *testing.T, l *leases) {
			l.acquire(l.d, "s")
			l.complete(l.d, "s")
			for _, id := range []string{"step", "more"} {
				require.NoError(t, l.Append(acc, "s", &task.Task{ID: id, Type: "execute"}))
			}
			l.acquire(l.d, "step")
			l.silence()
			require.NoError(t, l.AppendDetached(acc, "s", &task.Task{ID: "clean", Type: "cleanup"}))
			id := l.Register(acc, Registration{ID: l.d, Name: "d"})
			assert.Equal(t, l.d, id)
			assert.Equal(t, []string{"step"}, l.stops(l.d), "the task that it had acquired")
			assert.Equal(t, []string{"clean"}, l.offers(l.d))
			require.NoError(t, l.answer(l.d, "step"))
			assert.Empty(t, l.stops(l.d))
		},
		"a delegate returns in time with running tasks": func(t *testing.T, l *leases) {
			l.acquire(l.d, "s")
			l.advance(59 * time.Second)
			assert.Equal(t, l.d, l.Register(acc, Registration{ID: l.d, Name: "d"}))
			assert.Empty(t, l.stops(l.d), "it keeps them")
			require.NoError(t, l.answer(l.d, "s"))
			assert.Equal(t, Success, l.ends("s"))
		},
		"the delegate is unknown": func(t *testing.T, l *leases) {
			l.acquire(l.d, "s")
			require.NoError(t, l.Unregister(acc, l.d))
			assert.Equal(t, Abandoned, l.ends("s"))
			require.ErrorIs(t, l.Heartbeat(acc, Registration{ID: l.d}), ErrUnknownDelegate)
			_, err := l.get(l.d, "s")
			require.ErrorIs(t, err, ErrUnknownDelegate)
			require.NoError(t, l.answer(l.d, "s"))
			assert.Equal(t, Abandoned, l.ends("s"))
			assert.NotEqual(t, l.d, l.Register(acc, Registration{ID: l.d, Name: "d"}))
		},
		"a second answer": func(t *testing.T, l *leases) {
			l.acquire(l.d, "s")
			l.complete(l.d, "s")
			require.NoError(t, l.Complete(acc, l.d, "s", Answer{Outcome: Failure}))
			require.NoError(t, l.Complete(acc, l.d, "s", Answer{Retry: true}))
			require.NoError(t, l.Complete(acc, l.d, "s", Answer{Running: true}))
			assert.Equal(t, Success, l.ends("s"))
		},
		"an answer after the time-out": func(t *testing.T, l *leases) {
			l.acquire(l.d, "s")
			for range 4 { // 62 seconds and more
				l.advance(16 * time.Second)
				require.NoError(t, l.Heartbeat(acc, Registration{ID: l.d}))
			}
			assert.Equal(t, []string{"s"}, l.stops(l.d))
			require.NoError(t, l.answer(l.d, "s"))
			assert.Equal(t, TimedOut, l.ends("s"))
			assert.Empty(t, l.stops(l.d))
		},
		"an answer to an abort": func(t *testing.T, l *leases) {
			l.acquire(l.d, "s")
			require.NoError(t, l.Abort(acc, "s", "because"))
			require.NoError(t, l.answer(l.d, "s"))
			assert.Equal(t, Aborted, l.ends("s"))
		},
		"an answer before the task was acquired": func(t *testing.T, l *leases) {
			require.ErrorIs(t, l.answer(l.d, "s"), ErrNotOwner)
			l.acquire(l.d, "s")
		},
		"an answer of another delegate": func(t *testing.T, l *leases) {
			l.acquire(l.d, "s")
			require.ErrorIs(t, l.answer(l.other, "s"), ErrNotOwner)
			l.complete(l.d, "s")
			require.ErrorIs(t, l.answer(l.other, "s"), ErrNotOwner)
		},
		"an answer that hands the task back": func(t *testing.T, l *leases) {
			l.acquire(l.d, "s")
			for range 2 {
				require.NoError(t, l.Complete(acc, l.d, "s", Answer{Retry: true}))
			}
			assert.Equal(t, l.other, l.holder("s"))
			got, err := l.get(l.d, "s")
			require.NoError(t, err)
			assert.Empty(t, got)
		},
		"an answer before the stage was retried": func(t *testing.T, l *leases) {
			l.acquire(l.d, "s")
			require.NoError(t, l.Complete(acc, l.d, "s", Answer{Outcome: Failure}))
			require.NoError(t, l.Retry(acc, "s", one("again", "init"), time.Time{}))
			require.NoError(t, l.answer(l.d, "s"))
			assert.Equal(t, Failure, l.ends("s"))
			assert.Empty(t, l.ends("again"))
		},
		"an answer that an agent will answer": func(t *testing.T, l *leases) {
			l.acquire(l.d, "s")
			require.NoError(t, l.Complete(acc, l.d, "s", Answer{Running: true}))
			got, err := l.get(l.d, "s")
			require.NoError(t, err)
			assert.Empty(t, got, "an agent has it")
			assert.Empty(t, l.ends("s"))
			l.complete(l.d, "s")
			assert.Equal(t, Success, l.ends("s"))
		},
		"an answer to an unknown task": func(t *testing.T, l *leases) {
			require.ErrorIs(t, l.answer(l.d, "none"), ErrUnknownTask)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Config{})
			l := &leases{bench: b, d: b.add("d", 2), other: b.add("other", 1)}
			b.stage("s", Normal)
			require.Equal(t, l.d, b.holder("s"))
			row(t, l)
			checkIndex(t, b.accounts[acc])
		})
	}
}
