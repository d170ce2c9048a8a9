package queue

import (
	"bytes"
	"fmt"
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
