package queue

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The demand counts what more delegates could take: neither stages above a limit nor those of a paused account.
func TestTheDemandOfAKindOfDelegates(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	demand := func(k Kind) Demand {
		d, err := b.Demand(acc, k)
		require.NoError(t, err)
		return d
	}
	one := b.add("one", 1, "linux", "GPU")
	other := b.add("other", 1, "linux")
	b.stage("a", Normal, "gpu")
	b.stage("b", Normal, "linux")
	b.acquire(one, "a")
	b.acquire(other, "b")
	for _, id := range []string{"c", "d"} {
		b.stage(id, Normal, "Linux", "gpu")
	}
	b.stage("e", Normal)
	b.stage("f", Normal, "windows")
	b.single("task", "linux")

	assert.Equal(t, Demand{Waiting: 4, Running: 2}, demand(Kind{}))
	assert.Equal(t, Demand{Waiting: 3, Running: 1}, demand(Kind{Tags: []string{"gpu ", "LINUX"}}))
	assert.Equal(t, Demand{Waiting: 1, Running: 2}, demand(Kind{Tags: []string{"linux"}}))
	assert.Equal(t, Demand{Waiting: 1, Running: 2}, demand(Kind{Tags: []string{}}), "delegates without a tag take stages without selectors")
	assert.Equal(t, Demand{Waiting: 4, Running: 2}, demand(Kind{Types: [][]string{{"init", "execute"}}}))
	assert.Equal(t, Demand{}, demand(Kind{Types: [][]string{{"other"}}}))
	assert.Equal(t, Demand{Waiting: 3, Running: 1}, demand(Kind{Delegate: one}))
	assert.Equal(t, Demand{Waiting: 1, Running: 1}, demand(Kind{Delegate: other}))

	b.SetLimit(acc, "", 4)
	assert.Equal(t, Demand{Waiting: 2, Running: 2}, demand(Kind{}), "two more may run")
	b.SetLimit(acc, "", 1)
	assert.Equal(t, Demand{Running: 2}, demand(Kind{}))
	b.SetLimit(acc, "", 0)
	b.Pause(acc, true, "")
	assert.Equal(t, Demand{Running: 2}, demand(Kind{}))
	b.Pause(acc, false, "")

	require.NoError(t, b.SetDraining(acc, one, true))
	assert.Equal(t, Demand{Waiting: 3, Running: 0}, demand(Kind{Tags: []string{"gpu", "linux"}}), "a draining delegate needs no successor for what it finishes")
	_, err := b.Demand(acc, Kind{Delegate: "unknown"})
	require.ErrorIs(t, err, ErrUnknownDelegate)
	d, err := b.Demand("unknown", Kind{})
	require.NoError(t, err)
	assert.Equal(t, Demand{}, d)
}

// Stages of one pipeline share its limit, also if they need different delegates.
func TestTheDemandSharesTheRoomOfAGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	for id, selector := range map[string]string{"a": "linux", "b": "linux", "c": "gpu"} {
		require.NoError(t, b.Submit(acc, &Work{ID: id, Stage: true, Selectors: []string{selector}, Groups: []string{"pipeline:web"}, Variants: one(id, "init")}))
	}
	b.stage("d", Normal, "gpu")
	b.SetLimit(acc, "pipeline:web", 2)
	for want, groups := range map[int][]string{3: nil, 2: {"pipeline:web"}, 0: {"pipeline:other"}} {
		d, err := b.Demand(acc, Kind{Groups: groups})
		require.NoError(t, err)
		assert.Equal(t, Demand{Waiting: want}, d, "%v", groups)
	}
}

// The stages that are first in the queue use the room of a limit, so only their group needs machines.
func TestTheFirstStagesUseTheRoomOfALimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	types := []string{"init"}
	d := b.Register(acc, Registration{ID: "vm", Types: types})
	require.NoError(t, b.SetDraining(acc, d, true)) // all stages wait
	b.SetLimit(acc, "", 2)
	const pools = 20 // a map of them has no lucky order
	for i := range pools {
		id := fmt.Sprint("s", i)
		require.NoError(t, b.Submit(acc, &Work{ID: id, Stage: true, Groups: []string{"pool:" + id}, Variants: one(id, "init")}))
	}
	assert.Equal(t, map[string]int{"s0": 1, "s1": 1}, b.WaitingByGroup(acc, d, "pool:", [][]string{types}))
}
