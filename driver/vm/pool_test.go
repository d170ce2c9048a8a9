package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
)

// bubble is a pool with a provider in memory, in a synctest bubble with its own clock.
type bubble struct {
	*testing.T
	fake *fakeProvider
	pool *Pool
	cfg  PoolConfig
}

// inBubble runs f with a started pool, and requires that nothing remains when the pool is closed.
func inBubble(t *testing.T, cfg PoolConfig, f func(b *bubble)) {
	t.Parallel()
	cfg.Name, cfg.Dir = "test", t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, fake: newFake(1), cfg: cfg}
		b.fake.max, b.fake.dir = cfg.Max, cfg.Dir
		b.open()
		synctest.Wait()
		defer func() { // also after a failure of f, because a bubble requires that all goroutines end
			b.fake.set(func(f *fakeProvider) { f.faults = 0 })
			b.pool.cfg.KeepWarm = false
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			assert.NoError(t, b.pool.Close(ctx))
			assert.Empty(t, b.fake.broken)
		}()
		f(b)
	})
}

func (b *bubble) open() {
	b.Helper()
	var err error
	b.pool, err = NewPool(b.fake, b.cfg)
	require.NoError(b, err)
	b.pool.probe = b.fake.probe
	b.pool.dial = nil
	require.NoError(b, b.pool.Start(b.Context()))
}

// restart closes the pool and opens a new one.
func (b *bubble) restart() {
	b.Helper()
	require.NoError(b, b.pool.Close(b.Context()))
	b.open()
	synctest.Wait()
}

func (b *bubble) wait(d time.Duration) {
	b.Helper()
	require.NoError(b, pass(b.Context(), d))
	synctest.Wait()
}

// healthyCheck is the check of a claim.
func (b *bubble) healthyCheck(ctx context.Context, _ *machine, r *record) error {
	return b.fake.probe(ctx, r)
}

func (b *bubble) claim(ctx context.Context, l driver.Ledger) (*machine, error) {
	return b.pool.claim(ctx, &driver.Environment{ID: "stage"}, l, b.healthyCheck)
}

func (b *bubble) mustClaim() *machine {
	b.Helper()
	m, err := b.claim(b.Context(), &notes{})
	require.NoError(b, err)
	return m
}

func (b *bubble) release(m *machine) error {
	return b.pool.release(b.Context(), m.id, m.claim.Token, b.healthyCheck)
}

func (b *bubble) requireStats(want Stats) {
	b.Helper()
	synctest.Wait()
	got := b.pool.Stats()
	got.Failures, got.Expected = want.Failures, want.Expected
	require.Equal(b, want, got)
}

// Rule D6: a transaction waits for an exhausted pool, logs that, and receives a machine when one
// is free.
func TestAnExhaustedPoolQueues(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 1}, func(b *bubble) {
		m := b.mustClaim()
		log, done := &bytes.Buffer{}, make(chan *machine, 1)
		go func() {
			next, err := b.pool.claim(b.Context(), &driver.Environment{ID: "second", Log: log}, &notes{}, b.healthyCheck)
			require.NoError(b, err)
			done <- next
		}()
		b.requireStats(Stats{Claimed: 1, Waiting: 1})
		require.Equal(b, "Waiting for a machine of pool test: all 1 are in use or being created.\n", log.String())
		require.NoError(b, b.release(m))
		next := <-done
		require.NotEqual(b, m.id, next.id)
		require.NoError(b, b.release(next))
	})
}

// Rule D6: the end of a context ends the wait, and the error names the pool's last failure.
func TestAWaitEndsWithItsContext(t *testing.T) {
	inBubble(t, PoolConfig{Max: 1}, func(b *bubble) {
		b.fake.set(func(f *fakeProvider) { f.faults = 100 })
		ctx, cancel := context.WithTimeoutCause(b.Context(), time.Minute, errors.New("the stage's time is over"))
		defer cancel()
		_, err := b.claim(ctx, &notes{})
		require.ErrorContains(b, err, "the stage's time is over")
		require.ErrorContains(b, err, errUnlucky.Error())
		require.Zero(b, b.pool.Stats().Waiting)
	})
}

// The pool retries a failed creation without limit, with growing pauses.
func TestAPoolRetriesWithoutLimit(t *testing.T) {
	inBubble(t, PoolConfig{Max: 2, MinRetry: time.Second, MaxRetry: time.Minute}, func(b *bubble) {
		b.pool.cfg.Min = 2
		b.fake.set(func(f *fakeProvider) { f.faults = 100 })
		b.pool.signal()
		b.wait(time.Hour)
		// A machine that could neither be created nor destroyed counts.
		require.Equal(b, 2, b.fake.there())
		made := b.fake.created
		require.LessOrEqual(b, made, 2)
		b.fake.set(func(f *fakeProvider) { f.faults = 0 })
		b.wait(3 * time.Minute)
		b.requireStats(Stats{Warm: 2})
	})
}

// Rule D6: the back-off limits the number of attempts to create a machine.
func TestPausesBetweenAttemptsGrow(t *testing.T) {
	inBubble(t, PoolConfig{Max: 1, MinRetry: time.Second, MaxRetry: time.Minute}, func(b *bubble) {
		b.pool.cfg.Min = 1
		b.fake.set(func(f *fakeProvider) { f.mute = true })
		b.pool.cfg.BootTimeout = time.Second
		b.pool.signal()
		b.wait(time.Hour)
		require.Less(b, b.fake.created, 2*60+15)
		require.Greater(b, b.fake.created, 50)
		b.fake.set(func(f *fakeProvider) { f.mute = false })
		b.wait(2 * time.Minute)
		b.requireStats(Stats{Warm: 1})
	})
}

// A machine that cannot be destroyed counts. The pool retries until it is gone, and informs the
// waiting cleanup.
func TestADestroyIsRetriedUntilItSucceeds(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 1}, func(b *bubble) {
		m := b.mustClaim()
		b.fake.set(func(f *fakeProvider) { f.faults = 100 })
		require.ErrorIs(b, b.release(m), errUnlucky)
		require.ErrorIs(b, b.release(m), errUnlucky, "asked again, it tries again")
		b.wait(time.Hour)
		b.requireStats(Stats{Destroying: 1})
		b.fake.set(func(f *fakeProvider) { f.faults = 0 })
		require.NoError(b, b.release(m))
		b.wait(time.Second)
		b.requireStats(Stats{Warm: 1})
	})
}

// Rule D6: the pool checks warm machines. It replaces a dead machine at once, and one that does
// not answer after the second check.
func TestAWarmMachineThatIsNotHealthyIsReplaced(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 2, HealthInterval: time.Minute}, func(b *bubble) {
		first := b.only()
		b.fake.set(func(f *fakeProvider) { f.dead[first] = true })
		b.wait(time.Minute + 5*time.Second)
		second := b.only()
		require.NotEqual(b, first, second)
		b.requireStats(Stats{Warm: 1})
		b.fake.set(func(f *fakeProvider) { f.mute = true })
		b.wait(time.Minute)
		require.Equal(b, second, b.only(), "once may be chance")
		b.wait(10 * time.Second)
		b.fake.set(func(f *fakeProvider) { f.mute = false })
		b.wait(time.Minute)
		b.requireStats(Stats{Warm: 1})
		require.NotEqual(b, second, b.only())
	})
}

// Rule D6: the pool never hands out a machine that died after the last check.
func TestADeadMachineIsNotHandedOut(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 2}, func(b *bubble) {
		dead := b.only()
		b.fake.set(func(f *fakeProvider) { f.dead[dead] = true })
		m := b.mustClaim()
		require.NotEqual(b, dead, m.id)
		require.NotContains(b, b.fake.ids(), dead)
		require.NoError(b, b.release(m))
	})
}

// Rule D6: machines end after their idle time and at their maximum age.
func TestMachinesAgeOut(t *testing.T) {
	for name, cfg := range map[string]PoolConfig{
		"idle": {Min: 1, Max: 2, MaxIdle: time.Hour},
		"old":  {Min: 1, Max: 2, MaxAge: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, cfg, func(b *bubble) {
				first := b.only()
				b.wait(50 * time.Minute)
				require.Equal(b, first, b.only())
				b.wait(10*time.Minute + time.Second)
				require.NotEqual(b, first, b.only())
				m := b.mustClaim()
				b.wait(2 * time.Hour)
				b.pool.mu.Lock()
				require.Equal(b, claimed, m.phase, "a claimed one stays")
				b.pool.mu.Unlock()
				require.NoError(b, b.release(m))
			})
		})
	}
}

// Rule D6: a machine is reused up to its limit, only after a successful reset, and never by two
// transactions at once.
func TestAMachineIsReusedWithinItsLimits(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 1, MaxUses: 3}, func(b *bubble) {
		first, last := b.only(), claim{}
		for range 3 {
			m := b.mustClaim()
			require.Equal(b, first, m.id)
			old := *m.claim
			require.NoError(b, b.release(m))
			b.wait(time.Second)
			// The cleanup of the previous transaction may be repeated at any time.
			require.NoError(b, b.pool.release(b.Context(), first, old.Token, b.healthyCheck))
			last = old
		}
		m := b.mustClaim()
		require.NoError(b, b.pool.release(b.Context(), m.id, last.Token, b.healthyCheck))
		b.requireStats(Stats{Claimed: 1})
		require.NotEqual(b, first, m.id)
		failing := errors.New("a process did not end")
		require.NoError(b, b.pool.release(b.Context(), m.id, m.claim.Token, func(context.Context, *machine, *record) error { return failing }))
		next := b.mustClaim()
		require.NotEqual(b, m.id, next.id)
		require.NoError(b, b.release(next))
	})
}

// Rule D6: a dead machine is destroyed at once, even if it could be reused: its agent would not
// answer.
func TestADeadMachineIsNotCleanedUp(t *testing.T) {
	for name, die := range map[string]func(b *bubble, m *machine){
		"known": func(b *bubble, m *machine) { b.pool.lost(m, m.gone, errDead) },
		"not noticed": func(b *bubble, m *machine) {
			b.fake.set(func(f *fakeProvider) { f.dead[m.id] = true })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, PoolConfig{Max: 1, MaxUses: 3}, func(b *bubble) {
				m := b.mustClaim()
				die(b, m)
				begin := time.Now()
				require.NoError(b, b.pool.release(b.Context(), m.id, m.claim.Token, func(ctx context.Context, _ *machine, _ *record) error {
					<-ctx.Done() // an agent is asked until it answers
					return ctx.Err()
				}))
				require.Zero(b, time.Since(begin))
				b.requireStats(Stats{})
			})
		})
	}
}

// Rule D6: ages are limited even if an earlier process recorded them with a fast clock, or the
// clock is set back.
func TestAFastClockKeepsNoMachineTooLong(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 1, KeepWarm: true, MaxAge: time.Hour, Lease: 2 * time.Hour}, func(b *bubble) {
		ahead := func(change func(r *record, later time.Time)) {
			require.NoError(b, b.pool.Close(b.Context()))
			rec := b.record(b.only())
			change(rec, time.Now().AddDate(10, 0, 0))
			text, err := json.Marshal(rec)
			require.NoError(b, err)
			b.write(rec.ID, string(text))
			b.open()
			b.wait(time.Second)
		}
		first := b.only()
		ahead(func(r *record, later time.Time) { r.Born = later })
		require.Equal(b, first, b.only())
		b.wait(time.Hour)
		require.NotEqual(b, first, b.only(), "its age")

		ahead(func(r *record, later time.Time) { r.Reserved = &reserved{Transaction: "stage", Until: later} })
		b.requireStats(Stats{Reserved: 1})
		b.wait(2 * time.Hour)
		b.requireStats(Stats{Warm: 1})
		b.requireNoReservationOnRecord()
	})
}

func (f *fakeProvider) ids() (ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.owned {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// only returns the id of the only machine.
func (b *bubble) only() string {
	b.Helper()
	ids := b.fake.ids()
	require.Len(b, ids, 1)
	return ids[0]
}

func (b *bubble) record(id string) *record {
	b.Helper()
	text, err := os.ReadFile(filepath.Join(b.cfg.Dir, id+recordSuffix))
	require.NoError(b, err)
	r := &record{}
	require.NoError(b, json.Unmarshal(text, r))
	return r
}

func (b *bubble) write(id, text string) {
	b.Helper()
	require.NoError(b, os.WriteFile(filepath.Join(b.cfg.Dir, id+recordSuffix), []byte(text), 0o600))
}
