package vm

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
)

// Rule T2: a pool takes over or destroys the machines of an earlier process, as their records say,
// and destroys machines without a record.
func TestAPoolTakesOverMachinesOfAnEarlierProcess(t *testing.T) {
	inBubble(t, PoolConfig{Min: 2, Max: 6, KeepWarm: true, HealthInterval: time.Hour}, func(b *bubble) {
		kept := b.mustClaim()
		b.wait(time.Second)
		warmBefore := b.fake.ids()
		require.Len(b, warmBefore, 3)
		require.NoError(b, b.pool.Close(b.Context()))
		owner, err := os.ReadFile(filepath.Join(b.cfg.Dir, ownerName))
		require.NoError(b, err)
		half, torn, stray, dead := newID(), newID(), newID(), ""
		for _, id := range warmBefore {
			if id != kept.id {
				dead = id
			}
		}
		b.fake.set(func(f *fakeProvider) {
			for _, id := range []string{half, torn, stray} {
				f.owned[id] = string(owner)
			}
			f.dead[dead] = true
		})
		b.write(half, `{"version":1,"id":"`+half+`","phase":"creating"}`)
		b.write(torn, `{"version":1,"id":"`)
		require.NoError(b, os.WriteFile(filepath.Join(b.cfg.Dir, half+".json.new"), []byte("{"), 0o600))
		b.open()
		b.wait(time.Minute)
		after := b.fake.ids()
		require.Len(b, after, 3)
		require.Contains(b, after, kept.id)
		for _, id := range []string{half, torn, stray, dead} {
			require.NotContains(b, after, id)
		}
		b.requireStats(Stats{Warm: 2, Claimed: 1})
		// The claim still belongs to the transaction only.
		held, err := b.pool.hold(kept.id, kept.claim.Token)
		require.NoError(b, err)
		held.done()
		_, err = b.pool.hold(kept.id, newID())
		require.Error(b, err)
		require.Len(b, b.pool.find(map[string]string{driver.LabelTransaction: "stage"}), 1)
		require.Empty(b, b.pool.find(map[string]string{driver.LabelTransaction: "another"}))
		require.NoError(b, b.pool.release(b.Context(), kept.id, kept.claim.Token, b.healthyCheck))
		files, err := filepath.Glob(filepath.Join(b.cfg.Dir, "*.new"))
		require.NoError(b, err)
		require.Empty(b, files)
	})
}

// Rule T3: a cleanup waits for a destruction that began in an earlier process.
func TestACleanupWaitsForTheDestructionThatAnEarlierProcessBegan(t *testing.T) {
	inBubble(t, PoolConfig{Max: 2}, func(b *bubble) {
		m := b.mustClaim()
		require.NoError(b, b.pool.Close(b.Context()))
		rec := b.record(m.id)
		rec.Phase = destroying
		text, err := json.Marshal(rec)
		require.NoError(b, err)
		b.write(m.id, string(text))
		b.fake.set(func(f *fakeProvider) { f.slow = time.Minute })
		b.open()
		require.NoError(b, b.pool.release(b.Context(), m.id, m.claim.Token, b.healthyCheck))
		require.Zero(b, b.fake.there())
	})
}

// Rule D6: two processes never share a state directory, and a directory of a newer version is not
// changed.
func TestAStateDirectoryHasOneUser(t *testing.T) {
	inBubble(t, PoolConfig{Max: 1, KeepWarm: true}, func(b *bubble) {
		other, err := NewPool(b.fake, b.cfg)
		require.NoError(b, err)
		require.ErrorContains(b, other.Start(b.Context()), "another delegate uses the state directory")
		require.NoError(b, other.Close(b.Context()))
		require.NoError(b, b.pool.Close(b.Context()))
		newer := newID()
		b.write(newer, `{"version":2,"id":"`+newer+`","phase":"warm"}`)
		b.fake.set(func(f *fakeProvider) { f.owned[newer] = "x" })
		other, err = NewPool(b.fake, b.cfg)
		require.NoError(b, err)
		require.ErrorContains(b, other.Start(b.Context()), "version 2")
		require.Equal(b, 1, b.fake.there())
		require.NoError(b, other.Close(b.Context()))
		require.NoError(b, os.Remove(filepath.Join(b.cfg.Dir, newer+recordSuffix)))
		b.open()
	})
}

// A machine that is being created when the pool is closed does not leak.
func TestAMachineThatIsBeingCreatedAtTheEndIsDestroyed(t *testing.T) {
	inBubble(t, PoolConfig{Min: 3, Max: 3}, func(b *bubble) {
		b.restart() // all made at once
		b.fake.set(func(f *fakeProvider) { f.slow = time.Minute })
		m := b.mustClaim()
		require.NoError(b, b.release(m))
		b.requireStats(Stats{Warm: 2, Creating: 1})
		require.NoError(b, b.pool.Close(b.Context()))
		require.Zero(b, b.fake.there())
		b.fake.set(func(f *fakeProvider) { f.slow = 0 })
		b.open()
	})
}

// Rule D6: a pool that cannot destroy a machine is closed at its time-out and names the machine.
// The next process destroys it.
func TestACloseDoesNotHang(t *testing.T) {
	inBubble(t, PoolConfig{Min: 2, Max: 2}, func(b *bubble) {
		b.fake.set(func(f *fakeProvider) { f.faults = 100 })
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		err := b.pool.Close(ctx)
		require.ErrorContains(b, err, "is not destroyed")
		require.ErrorIs(b, err, errUnlucky)
		_, err = b.claim(b.Context(), &notes{})
		require.ErrorIs(b, err, errClosed)
		left := b.fake.ids()
		b.fake.set(func(f *fakeProvider) { f.faults = 0 })
		b.open()
		b.wait(time.Minute)
		b.requireStats(Stats{Warm: 2})
		for _, id := range left {
			require.NotContains(b, b.fake.ids(), id)
		}
	})
}

// Rule D6: the same holds for machines without a record.
func TestACloseDoesNotWaitForMachinesWithoutARecord(t *testing.T) {
	inBubble(t, PoolConfig{Max: 1, SweepInterval: time.Hour}, func(b *bubble) {
		b.fake.set(func(f *fakeProvider) { f.slow = 1000 * time.Hour })
		released := make(chan error, 1)
		go func() { released <- b.pool.release(b.Context(), newID(), newID(), b.healthyCheck) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		require.NoError(b, b.pool.Close(ctx))
		require.Equal(b, time.Second, time.Since(begin))
		require.Error(b, <-released, "it is to be tried again")
		b.fake.set(func(f *fakeProvider) { f.slow = 0 })
		b.open()
	})
}

// Rule S5: only the delegate's user can read a record.
func TestRecordsArePrivate(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 1}, func(b *bubble) {
		info, err := os.Stat(filepath.Join(b.cfg.Dir, b.only()+recordSuffix))
		require.NoError(b, err)
		require.Equal(b, os.FileMode(0o600), info.Mode().Perm())
		require.Contains(b, string(b.record(b.only()).Key), "PRIVATE KEY")
	})
}

func TestAnInvalidPoolIsRefused(t *testing.T) {
	t.Parallel()
	good := PoolConfig{Name: "linux", Dir: t.TempDir(), Max: 1}
	_, err := NewPool(newFake(1), good)
	require.NoError(t, err)
	_, err = NewPool(nil, good)
	require.Error(t, err)
	for name, change := range map[string]func(c *PoolConfig){
		"no name":            func(c *PoolConfig) { c.Name = "" },
		"a name with a path": func(c *PoolConfig) { c.Name = "../x" },
		"no folder":          func(c *PoolConfig) { c.Dir = "" },
		"no machines":        func(c *PoolConfig) { c.Max = 0 },
		"a minimum above":    func(c *PoolConfig) { c.Min = 2 },
		"a negative minimum": func(c *PoolConfig) { c.Min = -1 },
		"a negative age":     func(c *PoolConfig) { c.MaxAge = -1 },
		"negative uses":      func(c *PoolConfig) { c.MaxUses = -1 },
	} {
		bad := good
		change(&bad)
		_, err := NewPool(newFake(1), bad)
		require.Error(t, err, name)
	}
}
