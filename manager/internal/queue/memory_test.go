package queue

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

// The size of remembered answers is bounded as well as their number. The newest one is
// remembered with any size.
func TestTheAnswersOfEndedTasksAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{MaxFinishedBytes: 1000})
	d := b.add("d", 0)
	run := func(id string, size int) {
		b.single(id)
		b.acquire(d, id)
		require.NoError(t, b.Complete(acc, d, id, Answer{Outcome: Success, Data: bytes.Repeat([]byte("1"), size)}))
	}
	known := func() (ids []string) {
		for id := range b.accounts[acc].tasks {
			ids = append(ids, id)
		}
		return ids
	}
	for i := range 10 {
		run(fmt.Sprint("t", i), 400)
	}
	assert.ElementsMatch(t, []string{"t8", "t9"}, known())
	run("huge", 5000)
	assert.Equal(t, []string{"huge"}, known())
	run("small", 1)
	assert.Equal(t, []string{"small"}, known())
	b.now = b.now.Add(2 * time.Hour)
	b.Tick(b.now)
	assert.Zero(t, b.bytes)
	assert.Zero(t, b.finished.size)
}

// The memory of the caller for an ended work counts like its answers.
func TestTheSizeOfEndedWorksIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{MaxFinishedBytes: 1000})
	for i := range 10 {
		id := fmt.Sprint("s", i)
		require.NoError(t, b.Submit(acc, &Work{ID: id, Size: 400, Variants: []Variant{{Task: &task.Task{ID: id, Type: "t"}}}}))
		require.NoError(t, b.Abort(acc, id, ""))
	}
	assert.Equal(t, 2, b.finished.size)
	assert.Equal(t, 800, b.bytes)
}

// endIn ends single tasks of an account, each with an answer of a size.
func (b *bench) endIn(account string, size int, ids ...string) {
	for _, id := range ids {
		require.NoError(b.t, b.Submit(account, &Work{ID: id, Size: size, Variants: []Variant{{Task: &task.Task{ID: id, Type: "t"}}}}))
		require.NoError(b.t, b.Abort(account, id, ""))
	}
}

// remembered lists the works of an account.
func (b *bench) remembered(account string) []string {
	return slices.Sorted(maps.Keys(b.accounts[account].works))
}

// The number of ended works is shared fairly: an account that ends many forgets its own.
func TestAnAccountDisplacesOnlyItsOwnEndedWorks(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{MaxFinished: 6, FairRetention: true})
	b.endIn("few", 1, "f1", "f2")
	for i := range 100 {
		b.endIn("many", 1, fmt.Sprintf("m%02d", i))
	}
	assert.Equal(t, []string{"f1", "f2"}, b.remembered("few"))
	assert.Equal(t, []string{"m96", "m97", "m98", "m99"}, b.remembered("many"))
	b.endIn("few", 1, "f3", "f4", "f5")
	assert.Equal(t, []string{"f3", "f4", "f5"}, b.remembered("few"), "the account that has more loses its oldest")
	assert.Equal(t, []string{"m97", "m98", "m99"}, b.remembered("many"))
}

// The size of ended works is shared fairly too. The newest work is remembered with any size,
// and displaces only works of its own account.
func TestALargeEndedWorkDisplacesNoneOfAnotherAccount(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{MaxFinishedBytes: 1000, FairRetention: true})
	b.endIn("few", 100, "f1", "f2")
	b.endIn("large", 300, "l1", "l2", "l3")
	assert.Equal(t, []string{"l2", "l3"}, b.remembered("large"))
	b.endIn("large", 5000, "huge")
	assert.Equal(t, []string{"huge"}, b.remembered("large"))
	assert.Equal(t, []string{"f1", "f2"}, b.remembered("few"))
	b.endIn("few", 100, "f3")
	assert.Empty(t, b.remembered("large"))
	assert.Equal(t, []string{"f1", "f2", "f3"}, b.remembered("few"))
	assert.Equal(t, 300, b.bytes)
}

// A loaded queue forgets the same works as the saved one.
func TestALoadedQueueSharesTheEndedWorksInTheSameWay(t *testing.T) {
	t.Parallel()
	cfg := Config{MaxFinished: 6, FairRetention: true}
	b := newBench(t, cfg)
	b.endIn("few", 1, "f1", "f2")
	b.endIn("many", 1, "m1", "m2", "m3", "m4")
	b.Events()
	var saved bytes.Buffer
	require.NoError(t, b.Save(&saved))
	loaded := newBench(t, cfg)
	require.NoError(t, loaded.Load(&saved))
	loaded.endIn("few", 1, "f3")
	assert.Equal(t, []string{"f1", "f2", "f3"}, loaded.remembered("few"))
	assert.Equal(t, []string{"m2", "m3", "m4"}, loaded.remembered("many"))
}

// The answer of a cleanup that ends after its stage counts too.
func TestALateCleanupCounts(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	d := b.add("d", 1)
	b.stage("s", Normal)
	b.acquire(d, "s")
	b.complete(d, "s")
	require.NoError(t, b.AppendDetached(acc, "s", &task.Task{ID: "clean", Type: "cleanup"}))
	require.NoError(t, b.Release(acc, "s"))
	b.acquire(d, "clean")
	require.NoError(t, b.Complete(acc, d, "clean", Answer{Outcome: Failure, Error: "0123456789"}))
	assert.Equal(t, 11, b.bytes)
	b.now = b.now.Add(2 * time.Hour)
	b.Tick(b.now)
	assert.Zero(t, b.bytes)
}

// Works that are forgotten by age leave the list of ended works, even if no other work
// ends afterwards.
func TestForgottenWorksLeaveTheList(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{Retention: time.Minute, HeartbeatTimeout: time.Hour})
	for i := range 100 {
		b.single(fmt.Sprint("t", i))
		require.NoError(t, b.Abort(acc, fmt.Sprint("t", i), "because"))
	}
	require.Equal(t, 100, b.finished.size)
	b.advance(time.Minute)
	assert.Zero(t, b.finished.size)
}

// The default of 10,000 ended stages fits a small machine: a stage of an init, three
// steps and a cleanup takes a few kilobytes. The test is not parallel: it measures the
// heap.
func TestEndedStagesAreSmall(t *testing.T) {
	const stages = 2000
	b := newBench(t, Config{MaxFinishedBytes: 256 << 20})
	d := b.add("d", 1)
	before := heapInUse()
	for i := range stages {
		id := fmt.Sprint("s", i)
		b.stage(id, Normal)
		b.acquire(d, id)
		b.complete(d, id)
		for _, part := range []string{"a", "b", "c", "clean"} {
			next := &task.Task{ID: id + part, Type: "step", Data: bytes.Repeat([]byte("1"), 10_000)}
			require.NoError(t, b.Append(acc, id, next))
			b.acquire(d, next.ID)
			require.NoError(t, b.Complete(acc, d, next.ID, Answer{Outcome: Success, Data: bytes.Repeat([]byte("1"), 10_000)}))
		}
		require.NoError(t, b.Release(acc, id))
		b.Events()
	}
	each := (heapInUse() - before) / stages
	t.Logf("%d bytes for an ended stage of five tasks", each)
	assert.Less(t, each, 6<<10)
	require.Equal(t, stages, b.finished.size)
}
