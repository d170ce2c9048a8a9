package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

// fail takes a stage from its offer to the failure of its first task.
func (b *bench) fail(d, id string) {
	b.acquire(d, id)
	require.NoError(b.t, b.Complete(acc, d, id, Answer{Outcome: Failure, Error: "no disk"}))
}

// Rules Q2 and Q4: a retried stage keeps its age. Its slot goes to the first work, which
// may be the stage itself.
func TestARetriedStageWaitsAtItsOldPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	d := b.add("d", 1)
	b.stage("first", Normal)
	b.fail(d, "first")
	b.stage("old", Normal)
	b.stage("young", Normal)
	require.NoError(t, b.Release(acc, "first"))
	b.fail(d, "old")
	b.stage("urgent", High)
	require.NoError(t, b.Retry(acc, "old", one("old-2", "init"), time.Time{}))
	assert.Equal(t, []string{"urgent"}, b.offers(d))
	assert.Equal(t, 1, b.number("old"))
	assert.Equal(t, 2, b.number("young"))
	b.runStage(d, "urgent")
	assert.Equal(t, []string{"old-2"}, b.offers(d))
	s, err := b.Task(acc, "old")
	require.NoError(t, err)
	assert.Equal(t, Result{Outcome: Failure, Error: "no disk"}, s.Result, "the earlier attempt is still known")
}

func (b *bench) number(id string) int {
	p, err := b.Place(acc, id)
	require.NoError(b.t, err)
	return p.Number
}

// A delegate that had the stage comes last, also if it asked for another delegate.
func TestARetryPrefersAnotherDelegate(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	wide := b.add("wide", 9)
	b.stage("s", Normal)
	b.acquire(wide, "s")
	require.NoError(t, b.Complete(acc, wide, "s", Answer{Retry: true}))
	narrow := b.add("narrow", 1)
	b.fail(narrow, "s")
	third := b.add("third", 1)
	require.NoError(t, b.Retry(acc, "s", one("s2", "init"), time.Time{}))
	require.Equal(t, third, b.holder("s2"))
	b.fail(third, "s2")
	require.NoError(t, b.Heartbeat(acc, Registration{ID: narrow, Draining: true}))
	require.NoError(t, b.Retry(acc, "s", one("s3", "init"), time.Time{}))
	assert.Equal(t, wide, b.holder("s3"), "it may have it again")
	for _, id := range []string{"s", "s2"} { // earlier answers may come again
		for _, d := range []string{wide, narrow, third} {
			if id == "s" || d == third {
				require.NoError(t, b.Complete(acc, d, id, Answer{Outcome: Success}))
			}
		}
	}
	s, err := b.Task(acc, "s3")
	require.NoError(t, err)
	assert.Zero(t, s.Ended)
	require.ErrorIs(t, b.Complete(acc, "unknown", "s", Answer{}), ErrNotOwner)
}

// A stage that waits for its time is in no list of the index. Its QueueTimeout begins at
// that time.
func TestAStageMayWaitForItsTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{HeartbeatTimeout: time.Hour})
	d := b.add("d", 1)
	at := b.now.Add(time.Minute)
	require.NoError(t, b.Submit(acc, &Work{
		ID: "s", Stage: true, NotBefore: at, QueueTimeout: 10 * time.Second, Variants: one("s", "init"),
	}))
	b.stage("young", Normal)
	require.Equal(t, []string{"young"}, b.offers(d), "the stage that waits for its time gets no slot")
	b.acquire(d, "young")
	b.stage("youngest", Normal)
	want := Place{Reason: "it is not to begin before 2023-11-14T22:14:20Z"}
	p, err := b.Place(acc, "s")
	require.NoError(t, err)
	assert.Equal(t, want, p)
	assert.Equal(t, map[string]Place{"s": want, "youngest": {1, b.reason("youngest")}}, b.Places(acc))
	assert.Equal(t, 1, b.Waiting(acc)[0].Count)
	next, _ := b.NextDeadline()
	assert.Equal(t, at, next)
	b.advance(time.Minute)
	assert.Equal(t, 1, b.number("s"), "it has kept its age")
	b.advance(9 * time.Second)
	assert.NotContains(t, b.happened(), "ended s TIMEOUT")
	b.advance(time.Second)
	assert.Contains(t, b.happened(), "ended s TIMEOUT", "its time in the queue is over")
}

// The slot and the room that a retry leaves are given away at once, also if the stage
// waits for its time.
func TestARetryReleasesItsSlotAndItsRoomInTheGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{HeartbeatTimeout: time.Hour})
	b.SetLimit(acc, "g", 1)
	d, other := b.add("d", 1), b.add("other", 1, "big")
	require.NoError(t, b.Submit(acc, &Work{
		ID: "s", Stage: true, Groups: []string{"g"}, Selectors: []string{"d"}, RunTimeout: 2 * time.Minute, Variants: one("s", "init"),
	}))
	require.NoError(t, b.Submit(acc, &Work{
		ID: "same group", Stage: true, Groups: []string{"g"}, Selectors: []string{"big"}, Variants: one("same group", "init"),
	}))
	b.stage("same slot", Normal, "d")
	b.fail(d, "s")
	b.Events()
	require.NoError(t, b.Retry(acc, "s", one("again", "other"), b.now.Add(time.Minute)))
	assert.Equal(t, []string{"same slot"}, b.offers(d))
	assert.Equal(t, []string{"same group"}, b.offers(other))
	checkIndex(t, b.accounts[acc])
	b.runStage(d, "same slot")
	b.runStage(other, "same group")
	b.Events()
	b.advance(time.Minute)
	b.acquire(d, "again")
	b.Events()
	b.advance(119 * time.Second)
	for _, e := range b.Events() {
		assert.NotEqual(t, Expired, e.Kind, "its RunTimeout has begun again")
	}
}

func TestRetriesThatAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	d := b.add("d", 0)
	b.stage("s", Normal)
	b.single("single")
	again := func(work, id string) error { return b.Retry(acc, work, one(id, "init"), time.Time{}) }
	require.ErrorIs(t, again("none", "x"), ErrUnknownWork)
	require.ErrorIs(t, again("single", "x"), ErrFinished)
	require.ErrorContains(t, again("s", "x"), "has not ended")
	b.fail(d, "s")
	require.ErrorIs(t, again("s", "s"), ErrExists)
	require.Error(t, b.Retry(acc, "s", nil, time.Time{}))
	require.Error(t, b.Retry(acc, "s", []Variant{{}}, time.Time{}))
	require.NoError(t, b.AppendDetached(acc, "s", &task.Task{ID: "clean", Type: "cleanup"}))
	require.NoError(t, again("s", "s2"), "its cleanup may still run")
	assert.Equal(t, []string{"single", "clean", "s2"}, b.offers(d))
	b.fail(d, "s2")
	require.NoError(t, b.Release(acc, "s"))
	require.ErrorIs(t, again("s", "s3"), ErrFinished)
}

// A stage that no delegate acquired in time may be retried too.
func TestAStageThatHadNoDelegateMayBeRetried(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	require.NoError(t, b.Submit(acc, &Work{ID: "s", Stage: true, QueueTimeout: time.Minute, Variants: one("s", "init")}))
	b.advance(time.Minute)
	require.NoError(t, b.Retry(acc, "s", one("s2", "init"), time.Time{}))
	assert.Equal(t, 1, b.number("s"))
	b.Events()
	b.advance(time.Minute)
	require.Len(t, b.Events(), 1)
	require.NoError(t, b.Release(acc, "s"))
}
