package capacity_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegate-io/dlite/task/capacity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// take takes all slots that a share may take.
func take(s *capacity.Slots) (all []*capacity.Slot) {
	for {
		slot, ok := s.Take()
		if !ok {
			return all
		}
		all = append(all, slot)
	}
}

// Two pollers always have stages to start, and one of them always asks first.
func TestSharesTakeTurns(t *testing.T) {
	t.Parallel()
	first := capacity.NewSlots(1)
	second := first.Share()
	open := take(first)
	require.Len(t, open, 1)
	counts := [2]int{1, 0}
	for range 10 {
		assert.Empty(t, take(second))
		open[0].Release()
		open = take(first)
		counts[0] += len(open)
		if len(open) == 0 {
			open = take(second)
			counts[1] += len(open)
		}
		require.Len(t, open, 1)
		assert.Equal(t, 1, first.Used())
	}
	assert.InDelta(t, counts[0], counts[1], 2, "%v", counts)
}

// A share that has no stage any more delays the other one for the time of a turn.
func TestAShareWithoutAStageLosesItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := capacity.NewSlots(1)
		second := first.Share()
		open := take(first)
		require.Empty(t, take(second))
		open[0].Release()
		begun := time.Now()
		for {
			changed := first.Changed()
			if len(take(first)) == 1 {
				break
			}
			<-changed
		}
		assert.Less(t, time.Since(begun), time.Second)
	})
}

// Without contention a share takes all slots.
func TestAShareMayTakeAllSlots(t *testing.T) {
	t.Parallel()
	slots := capacity.NewSlots(3)
	assert.Len(t, take(slots.Share()), 3)
	assert.Empty(t, take(slots))
}

// A share that took all slots gives half of them to another one, whichever asks first, also if the other
// share asks late.
func TestSharesWithStagesGetEqualParts(t *testing.T) {
	t.Parallel()
	first := capacity.NewSlots(4)
	second := first.Share()
	open := [2][]*capacity.Slot{take(first)}
	require.Len(t, open[0], 4)
	ask := func() {
		for i, share := range []*capacity.Slots{first, second, first} {
			i %= 2
			open[i] = append(open[i], take(share)...)
		}
	}
	ask()
	for range 2 { // the stages of the first share end
		open[0][0].Release()
		open[0] = open[0][1:]
		ask()
	}
	assert.Len(t, open[0], 2)
	assert.Len(t, open[1], 2)
	for range 6 { // and then those of the second one, which are shorter
		open[1][0].Release()
		open[1] = open[1][1:]
		ask()
		assert.Len(t, open[0], 2)
		assert.Len(t, open[1], 2)
	}
	open[1][0].Release() // the second share does not ask
	open[1] = open[1][1:]
	assert.Empty(t, take(first))
	open[1] = append(open[1], take(second)...)
	assert.Len(t, open[1], 2)
}
