package capacity_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/delegate-io/dlite/task/capacity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Rule Q1.
func TestTakeEndsAtTheMaximum(t *testing.T) {
	t.Parallel()
	slots := capacity.NewSlots(2)
	a, ok := slots.Take()
	require.True(t, ok)
	_, ok = slots.Take()
	require.True(t, ok)

	none, ok := slots.Take()
	assert.False(t, ok)
	assert.Nil(t, none)
	assert.Equal(t, 2, slots.Used())
	assert.Equal(t, 2, slots.Max())

	a.Release()
	_, ok = slots.Take()
	assert.True(t, ok)
}

// Rule Q1: zero means no limit.
func TestZeroMeansNoLimit(t *testing.T) {
	t.Parallel()
	slots := capacity.NewSlots(0)
	for range 1000 {
		_, ok := slots.Take()
		require.True(t, ok)
	}
	assert.Equal(t, 1000, slots.Used())
	assert.Zero(t, slots.Max())
	assert.Panics(t, func() { capacity.NewSlots(-1) })
}

// Rules T2, Q1: stages that survived a restart count, also above the limit.
func TestForceExceedsTheMaximumAndCounts(t *testing.T) {
	t.Parallel()
	slots := capacity.NewSlots(1)
	a, b := slots.Force(), slots.Force()
	assert.Equal(t, 2, slots.Used())
	a.Release()
	_, ok := slots.Take()
	assert.False(t, ok, "still full")
	b.Release()
	_, ok = slots.Take()
	assert.True(t, ok)
}

func TestASlotIsReleasedOnce(t *testing.T) {
	t.Parallel()
	slots := capacity.NewSlots(3)
	other := slots.Force()
	a := slots.Force()
	a.Release()
	a.Release()
	a.Drop()
	assert.Equal(t, 1, slots.Used())
	assert.False(t, a.Keep(), "it is gone")
	assert.True(t, other.Keep())
}

// Drop by the poller has no effect after Keep by the transaction.
func TestDropDoesNotReleaseAKeptSlot(t *testing.T) {
	t.Parallel()
	slots := capacity.NewSlots(1)
	a, _ := slots.Take()
	require.True(t, a.Keep())
	require.True(t, a.Keep())
	a.Drop()
	assert.Equal(t, 1, slots.Used())
	a.Release()
	assert.Zero(t, slots.Used())

	b, _ := slots.Take()
	b.Drop()
	assert.Zero(t, slots.Used())
	assert.False(t, b.Keep(), "it was dropped before")
}

// A caller that calls Changed before Used misses no change.
func TestChangedIsClosedOnlyByTheNextChange(t *testing.T) {
	t.Parallel()
	slots := capacity.NewSlots(1)
	before := slots.Changed()
	assert.False(t, closed(before))
	a, _ := slots.Take()
	assert.True(t, closed(before))

	full := slots.Changed()
	_, ok := slots.Take()
	require.False(t, ok)
	a.Keep()
	a.Drop()
	assert.False(t, closed(full), "nothing has changed")
	a.Release()
	assert.True(t, closed(full))

	after := slots.Changed()
	a.Release()
	a.Drop()
	assert.False(t, closed(after), "nothing was given back")
}

// Every release wakes the goroutines that wait on Changed.
func TestWaitersGetEverySlot(t *testing.T) {
	t.Parallel()
	const stages, workers = 200, 8
	slots := capacity.NewSlots(2)
	work := make(chan struct{}, stages)
	for range stages {
		work <- struct{}{}
	}
	close(work)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range work {
				for {
					changed := slots.Changed()
					slot, ok := slots.Take()
					if ok {
						slot.Release()
						break
					}
					<-changed
				}
			}
		})
	}
	wg.Wait()
	assert.Zero(t, slots.Used())
}

// model is the expected state of a slot.
type model struct {
	slot           *capacity.Slot
	kept, released bool
}

// Rule Q1: in any order of calls, only Force exceeds the maximum, the count is
// never negative, and Changed is closed by every change and by nothing else.
func TestSlotsFollowTheirModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		maximum := rapid.IntRange(0, 4).Draw(t, "max")
		slots := capacity.NewSlots(maximum)
		var all []*model
		used := 0
		pick := func(t *rapid.T) *model {
			if len(all) == 0 {
				t.Skip("no slot yet")
			}
			return all[rapid.IntRange(0, len(all)-1).Draw(t, "slot")]
		}
		give := func(m *model) {
			if !m.released {
				m.released = true
				used--
			}
		}
		step := func(f func(*rapid.T)) func(*rapid.T) {
			return func(t *rapid.T) {
				before, watch := used, slots.Changed()
				f(t)
				if closed(watch) != (used != before) {
					t.Fatalf("Changed is %v after used went from %d to %d", closed(watch), before, used)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": step(func(t *rapid.T) {
				slot, ok := slots.Take()
				if want := maximum == 0 || used < maximum; ok != want {
					t.Fatalf("Take is %v with %d of %d used", ok, used, maximum)
				}
				if ok {
					all = append(all, &model{slot: slot})
					used++
				}
			}),
			"force": step(func(*rapid.T) {
				all = append(all, &model{slot: slots.Force()})
				used++
			}),
			"keep": step(func(t *rapid.T) {
				m := pick(t)
				if ok := m.slot.Keep(); ok == m.released {
					t.Fatalf("Keep is %v of a slot that is %+v", ok, m)
				}
				m.kept = m.kept || !m.released
			}),
			"drop": step(func(t *rapid.T) {
				m := pick(t)
				m.slot.Drop()
				if !m.kept {
					give(m)
				}
			}),
			"release": step(func(t *rapid.T) {
				m := pick(t)
				m.slot.Release()
				give(m)
			}),
			"": func(t *rapid.T) {
				if got := slots.Used(); got != used || got < 0 {
					t.Fatalf("Used is %d, it should be %d", got, used)
				}
			},
		})
	})
}

// If Keep returns true, a concurrent Drop must not release the slot. Both calls
// start together for every slot, because the window of an error is small.
func TestConcurrentKeepAndDropAgree(t *testing.T) {
	t.Parallel()
	slots := capacity.NewSlots(0)
	const rounds = 20_000
	var arrived [rounds]atomic.Int32
	meet := func(i int) {
		for arrived[i].Add(1); arrived[i].Load() < 2; {
			runtime.Gosched()
		}
	}
	all := make([]*capacity.Slot, rounds)
	for i := range all {
		all[i] = slots.Force()
	}
	kept := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for i, slot := range all {
			meet(i)
			if slot.Keep() {
				kept++
			}
		}
	})
	wg.Go(func() {
		for i, slot := range all {
			meet(i)
			slot.Drop()
		}
	})
	wg.Wait()
	assert.Equal(t, kept, slots.Used())
}

// The count is correct after concurrent calls.
func TestSlotsUnderLoad(t *testing.T) {
	t.Parallel()
	const maximum = 3
	slots := capacity.NewSlots(maximum)
	var wg sync.WaitGroup
	for i := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(i, i))
			for range 500 {
				slot, ok := slots.Take()
				assert.LessOrEqual(t, slots.Used(), maximum)
				if !ok {
					continue
				}
				var ends sync.WaitGroup
				for range 2 { // as the poller and the transaction do
					keep, release := r.IntN(2) == 0, r.IntN(2) == 0
					ends.Go(func() {
						if keep && slot.Keep() && release {
							slot.Release()
						}
						slot.Drop()
					})
				}
				ends.Wait()
				slot.Release()
			}
		})
	}
	wg.Wait()
	assert.Zero(t, slots.Used())
}

func TestSlotTravelsInAContext(t *testing.T) {
	t.Parallel()
	_, ok := capacity.FromContext(t.Context())
	assert.False(t, ok)
	slot := capacity.NewSlots(1).Force()
	got, ok := capacity.FromContext(capacity.NewContext(context.Background(), slot))
	assert.True(t, ok)
	assert.Same(t, slot, got)
}

// Rule Q1: a positive integer, or empty for no limit. Other values are errors.
func TestParseMaxStages(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 0, "  ": 0, "1": 1, " 12\n": 12, "+3": 3, "007": 7} {
		got, err := capacity.ParseMaxStages(text)
		assert.NoError(t, err, "%q", text)
		assert.Equal(t, want, got, "%q", text)
	}
	for _, text := range []string{"0", "-1", "1.5", "1e3", "0x10", "two", "1 2", "99999999999999999999", "unlimited"} {
		_, err := capacity.ParseMaxStages(text)
		assert.ErrorContains(t, err, fmt.Sprintf("MAX_STAGES is %q", text))
		assert.ErrorContains(t, err, "positive integer", "the error names valid values")
	}
}

func BenchmarkTakeAndRelease(b *testing.B) {
	slots := capacity.NewSlots(4)
	b.ReportAllocs()
	for b.Loop() {
		slot, _ := slots.Take()
		slot.Release()
	}
}
