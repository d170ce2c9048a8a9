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
