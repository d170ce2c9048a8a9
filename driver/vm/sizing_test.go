package vm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/driver"
)

func TestAWindowFollowsTheClockOfItsZone(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for _, c := range []struct {
		w    Window
		at   time.Time
		want bool
	}{
		{Window{Days: "mon-fri", From: "07:00", To: "19:00", Zone: "Europe/Berlin"}, time.Date(2026, 7, 6, 5, 0, 0, 0, time.UTC), true},    // summer
		{Window{Days: "mon-fri", From: "07:00", To: "19:00", Zone: "Europe/Berlin"}, time.Date(2026, 12, 7, 5, 30, 0, 0, time.UTC), false}, // winter
		{Window{Days: "mon-fri", From: "07:00", To: "19:00"}, time.Date(2026, 7, 6, 19, 0, 0, 0, time.UTC), false},
		{Window{Days: "mon-fri", From: "07:00", To: "19:00"}, time.Date(2026, 7, 5, 12, 0, 0, 0, time.UTC), false},       // a Sunday
		{Window{Days: "fri", From: "22:00", To: "06:00"}, time.Date(2026, 7, 11, 5, 59, 0, 0, time.UTC), true},           // until Saturday
		{Window{Days: "fri", From: "22:00", To: "06:00"}, time.Date(2026, 7, 10, 5, 59, 0, 0, time.UTC), false},          // begins on Friday
		{Window{Days: "sat-mon, Wed", From: "00:00", To: "24:00"}, time.Date(2026, 7, 5, 23, 59, 59, 0, time.UTC), true}, // Sunday
		{Window{Days: "sat-mon,wed", From: "00:00", To: "24:00"}, time.Date(2026, 7, 7, 0, 0, 0, 0, time.UTC), false},    // Tuesday
		{Window{From: "02:30", To: "03:30", Zone: "Europe/Berlin"}, time.Date(2026, 3, 29, 3, 10, 0, 0, berlin), true},   // 02:30 does not exist
		{Window{From: "00:00", To: "00:00"}, time.Date(2026, 7, 7, 13, 0, 0, 0, time.UTC), true},                         // all day
	} {
		w, err := c.w.parse()
		require.NoError(t, err)
		assert.Equal(t, c.want, w.contains(c.at), "%+v at %v", c.w, c.at)
	}
	for want, w := range map[string]Window{
		`"7" is not a time of the day`: {From: "7", To: "08:00"}, `to: "25:00"`: {From: "07:00", To: "25:00"}, "from: 24:00 is the end": {From: "24:00", To: "01:00"},
		"zone: ": {From: "07:00", To: "08:00", Zone: "Mars/Base"}, `days: "someday"`: {From: "07:00", To: "08:00", Days: "mon,someday"},
		"it must be from 0 to the maximum, 3": {From: "07:00", To: "08:00", Min: 4},
	} {
		_, err := NewPool(struct{ Provider }{}, PoolConfig{Name: "x", Dir: "x", Max: 3, Schedule: []Window{w}})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "pool x: schedule 1: ")
	}
}

// Rule D6: the pool has the machines of its schedule during the window, and destroys them some time after its end.
func TestAPoolFollowsItsSchedule(t *testing.T) {
	cfg := PoolConfig{Min: 1, Max: 5, Schedule: []Window{{From: "08:00", To: "10:00", Min: 3}, {From: "09:00", To: "10:00", Min: 2}}}
	inBubble(t, cfg, func(b *bubble) { // the clock of a bubble begins at midnight in UTC
		b.requireStats(Stats{Warm: 1})
		b.wait(8*time.Hour - time.Second)
		b.requireStats(Stats{Warm: 1})
		b.wait(time.Second)
		b.requireStats(Stats{Warm: 3})
		b.wait(2*time.Hour + 9*time.Minute)
		b.requireStats(Stats{Warm: 3})
		b.wait(time.Minute)
		b.requireStats(Stats{Warm: 1})
		b.wait(22 * time.Hour)
		b.requireStats(Stats{Warm: 3})
	})
}

// Rule D6: stages that wait elsewhere get machines in advance, up to the maximum. Without further reports the pool shrinks.
func TestAPoolPreparesForWaitingStages(t *testing.T) {
	inBubble(t, PoolConfig{Max: 4, Forecast: true, ShrinkAfter: 5 * time.Minute}, func(b *bubble) {
		b.pool.SetWaiting(2)
		b.requireStats(Stats{Warm: 2})
		m := b.mustClaim()
		b.requireStats(Stats{Warm: 1, Claimed: 1}) // one of the two has come
		b.pool.SetWaiting(1000)
		b.requireStats(Stats{Warm: 3, Claimed: 1})
		b.wait(demandLife - time.Second)
		b.pool.SetWaiting(3)
		b.wait(demandLife)
		b.requireStats(Stats{Warm: 3, Claimed: 1})
		b.wait(5 * time.Minute)
		b.requireStats(Stats{Claimed: 1})
		require.NoError(b, b.release(m))
		b.requireStats(Stats{})
	})
	t.Run("hysteresis", func(t *testing.T) {
		inBubble(t, PoolConfig{Max: 4, Forecast: true}, func(b *bubble) {
			for i := range 100 { // the demand comes and goes
				b.pool.SetWaiting(3 * (i % 2))
				b.wait(time.Minute)
			}
			require.Equal(b, 3, b.fake.created, "no machine is created twice")
		})
	})
	t.Run("neither", func(t *testing.T) {
		inBubble(t, PoolConfig{Min: 1, Max: 2, MaxUses: 2}, func(b *bubble) { // as before
			first, second := b.mustClaim(), b.mustClaim()
			require.NoError(b, b.release(first))
			require.NoError(b, b.release(second))
			b.wait(24 * time.Hour)
			b.requireStats(Stats{Warm: 2})
		})
	})
}

// Rule L3: the time of each machine is charged to stages or to being idle.
func TestTheTimeOfMachinesIsCharged(t *testing.T) {
	inBubble(t, PoolConfig{Max: 2, Price: 0.5}, func(b *bubble) {
		b.fake.set(func(f *fakeProvider) { f.slow = 0 })
		m := b.mustClaim()
		b.wait(time.Hour)
		require.NoError(b, b.release(m))
		spent, stages := b.pool.costs()
		require.EqualValues(b, 1, stages)
		require.Equal(b, time.Hour, spent[useStage])
		require.Zero(b, spent[useIdle])
		b.pool.SetWaiting(1)
		b.wait(30 * time.Minute)
		spent, _ = b.pool.costs()
		require.Equal(b, 30*time.Minute, spent[useIdle])
		require.Equal(b, time.Hour, spent[useStage])
		b.wait(time.Minute)
		spent, _ = b.pool.costs()
		require.Equal(b, 31*time.Minute, spent[useIdle], "also between two changes of a machine")
	})
}

// Rule D6: with any schedule and any reports, there are never more machines than the maximum, the pool has the scheduled
// minimum when the provider works, and while nothing changes it neither creates nor destroys machines.
func TestTheSizeOfAPool(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		cfg := PoolConfig{Name: "test", Dir: t.TempDir(), Max: rapid.IntRange(1, 6).Draw(rt, "max"), Forecast: true, Lease: 1000 * time.Hour}
		cfg.ShrinkAfter = time.Duration(rapid.IntRange(1, 30).Draw(rt, "shrink")) * time.Minute
		cfg.MaxUses = rapid.IntRange(1, 3).Draw(rt, "uses")
		for i := range rapid.IntRange(0, 2).Draw(rt, "windows") {
			hour := rapid.IntRange(0, 22).Draw(rt, fmt.Sprint("hour ", i))
			cfg.Schedule = append(cfg.Schedule, Window{
				From: fmt.Sprintf("%02d:00", hour), To: fmt.Sprintf("%02d:30", hour+1), Min: rapid.IntRange(0, cfg.Max).Draw(rt, fmt.Sprint("min ", i)),
			})
		}
		moves := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) move {
			return move{rapid.SampledFrom([]string{"waiting", "claim", "release", "time", "hours", "fail", "work"}).Draw(rt, "kind"), rapid.IntRange(0, 20).Draw(rt, "n")}
		}), 1, 40).Draw(rt, "moves")
		seed := rapid.Uint64().Draw(rt, "seed")
		var failure error
		synctest.Test(t, func(t *testing.T) { failure = sizes(context.WithoutCancel(t.Context()), cfg, moves, seed) })
		if failure != nil {
			rt.Fatal(failure)
		}
	})
}

func sizes(ctx context.Context, cfg PoolConfig, moves []move, seed uint64) error {
	fake := newFake(seed)
	fake.max, fake.dir, fake.slow = cfg.Max, cfg.Dir, 20*time.Second
	p, err := NewPool(fake, cfg)
	if err != nil {
		return err
	}
	p.probe, p.dial, p.open = fake.probe, nil, (&disk{dice: rand.New(rand.NewPCG(seed, 1))}).open(&life{})
	if err := p.Start(ctx); err != nil {
		return err
	}
	check := func(ctx context.Context, _ *machine, r *record) error { return fake.probe(ctx, r) }
	defer func() {
		fake.set(func(f *fakeProvider) { f.faults = 0 })
		_ = p.Close(ctx)
	}()
	var held []*machine
	for i, mv := range moves {
		switch mv.Kind {
		case "waiting":
			p.SetWaiting(mv.N)
		case "claim":
			bounded, cancel := context.WithTimeout(ctx, time.Minute)
			if m, err := p.claim(bounded, &driver.Environment{ID: fmt.Sprint("stage ", i)}, &notes{}, check); err == nil {
				held = append(held, m)
			}
			cancel()
		case "release":
			if len(held) > 0 {
				_ = p.release(ctx, held[0].id, held[0].claim.Token, check) // the pool repeats it
				held = held[1:]
			}
		case "time":
			_ = pass(ctx, time.Duration(mv.N)*time.Minute)
		case "hours":
			_ = pass(ctx, time.Duration(mv.N)*time.Hour)
		case "fail", "work":
			faults := map[string]int{"fail": 50}[mv.Kind]
			fake.set(func(f *fakeProvider) { f.faults = faults })
		}
		if s := p.Stats(); s.Warm+s.Reserved+s.Claimed+s.Creating+s.Destroying > cfg.Max {
			return fmt.Errorf("after %v: %+v", mv, s)
		}
	}
	fake.set(func(f *fakeProvider) { f.faults = 0 })
	for range 26 { // more than a day, an hour at a time
		_ = pass(ctx, 31*time.Minute) // long enough for failures, old reports, and to shrink
		before, created := p.neededNow(), fake.count()
		_ = pass(ctx, 20*time.Minute)
		synctest.Wait()
		after, s := p.neededNow(), p.Stats()
		if s.Warm+s.Creating < min(after, cfg.Max-len(held)) && before == after {
			return fmt.Errorf("at %v: %+v, and the minimum is %d", time.Now(), s, after)
		}
		if n := fake.count(); before == after && n != created && after <= before {
			return fmt.Errorf("at %v: %d machines were created without a reason: %+v", time.Now(), n-created, s)
		}
		_ = pass(ctx, 9*time.Minute)
	}
	if len(fake.broken) > 0 {
		return fmt.Errorf("%v", fake.broken)
	}
	return nil
}

// count returns how many machines were created.
func (f *fakeProvider) count() (n int) {
	f.set(func(f *fakeProvider) { n = f.created })
	return n
}
