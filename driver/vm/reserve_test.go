package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// reserve reserves a machine for a transaction, for one hour.
func (b *bubble) reserve(transaction string) *driver.Reservation {
	b.Helper()
	r, err := b.pool.reserve(b.Context(), transaction, time.Hour)
	require.NoError(b, err)
	require.Equal(b, "test", r.Pool)
	return r
}

// claimFor starts the init of a transaction.
func (b *bubble) claimFor(ctx context.Context, transaction string) <-chan *machine {
	got := make(chan *machine, 1)
	pool := b.pool
	go func() {
		defer close(got)
		if m, err := pool.claim(ctx, &driver.Environment{ID: transaction}, &notes{}, b.healthyCheck); err == nil {
			got <- m
		}
	}()
	return got
}

// requireNoReservationOnRecord requires that no record has a reservation.
func (b *bubble) requireNoReservationOnRecord() {
	b.Helper()
	records, err := b.pool.records.read()
	require.NoError(b, err)
	for _, r := range records {
		require.Nil(b, r.Reserved, r.ID)
	}
}

// Rule D6 and docs/protocol.md, section 3: a reserved machine goes to its transaction only, even
// if others have waited longer.
func TestAReservedMachineGoesToItsTransaction(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 1}, func(b *bubble) {
		r := b.reserve("stage")
		require.NotEmpty(b, r.Machine)
		require.Zero(b, r.Place)
		require.Equal(b, time.Now().Add(time.Hour), r.Until)
		b.wait(time.Minute)
		require.Equal(b, r, b.reserve("stage"), "asked again")
		b.requireStats(Stats{Reserved: 1})

		other := b.claimFor(b.Context(), "other")
		b.requireStats(Stats{Reserved: 1, Waiting: 1})
		m := <-b.claimFor(b.Context(), "stage")
		require.Equal(b, r.Machine, m.id)
		b.requireStats(Stats{Claimed: 1, Waiting: 1})
		b.requireNoReservationOnRecord()
		require.NoError(b, b.release(m))
		require.NoError(b, b.release(<-other))
	})
}

// Rule D6: a pool keeps its minimum in addition to reserved machines.
func TestReservationsAreReplaced(t *testing.T) {
	inBubble(t, PoolConfig{Min: 2, Max: 3}, func(b *bubble) {
		b.reserve("stage")
		b.requireStats(Stats{Reserved: 1, Warm: 2})
	})
}

// docs/protocol.md, section 3: if all machines are in use, a reservation is a place in the queue,
// which the init uses.
func TestAnExhaustedPoolReservesAPlace(t *testing.T) {
	inBubble(t, PoolConfig{Max: 1}, func(b *bubble) {
		m := b.mustClaim()
		one := b.reserve("one")
		require.Empty(b, one.Machine)
		require.Equal(b, 1, one.Place)
		require.Equal(b, 2, b.reserve("two").Place)
		three := b.claimFor(b.Context(), "three")
		log := &bytes.Buffer{}
		two := make(chan *machine, 1)
		go func() {
			m, err := b.pool.claim(b.Context(), &driver.Environment{ID: "two", Log: log}, &notes{}, b.healthyCheck)
			require.NoError(b, err)
			two <- m
		}()
		b.requireStats(Stats{Claimed: 1, Waiting: 3})
		require.Contains(b, log.String(), "and 1 ahead in the queue")

		require.NoError(b, b.release(m))
		synctest.Wait()
		// The place belongs to the first transaction, whose init has not come, until it expires.
		b.requireStats(Stats{Reserved: 1, Waiting: 2})
		require.NotEmpty(b, b.reserve("one").Machine)
		b.wait(time.Hour)
		m = <-two
		require.NoError(b, b.release(m))
		require.NoError(b, b.release(<-three))
		b.requireNoReservationOnRecord()
	})
}

// Rule D6: a reservation without an init expires, and a returned reservation ends at once.
func TestReservationsEnd(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 1}, func(b *bubble) {
		for _, end := range map[string]func(){
			"their time": func() { b.wait(time.Hour) },
			"given back": func() {
				d := &Driver{pools: map[string]*Pool{"test": b.pool}}
				require.NoError(b, d.Unreserve(b.Context(), "one"))
				require.NoError(b, d.Unreserve(b.Context(), "two"))
				b.requireNoReservationOnRecord()
				require.NoError(b, d.Unreserve(b.Context(), "never was"))
			},
		} {
			require.NotEmpty(b, b.reserve("one").Machine)
			require.Equal(b, 1, b.reserve("two").Place)
			end()
			b.requireStats(Stats{Warm: 1})
			b.requireNoReservationOnRecord()
		}
		_, err := (&Driver{pools: map[string]*Pool{"test": b.pool}}).Reserve(b.Context(), &driver.Environment{ID: "x"}, 0)
		require.Error(b, err)
	})
}

// Rule D6: no reservation outlives an unused claim.
func TestALeaseBoundsReservations(t *testing.T) {
	inBubble(t, PoolConfig{Max: 1, Lease: time.Minute}, func(b *bubble) {
		require.Equal(b, time.Now().Add(time.Minute), b.reserve("stage").Until)
	})
}

// Rule T2: the next process keeps a reserved machine until the reservation expires. Its
// transaction gets it, even while the machine's health is unknown.
func TestAReservationIsKeptByTheNextProcess(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 2, KeepWarm: true}, func(b *bubble) {
		r := b.reserve("stage")
		b.restart()
		b.wait(time.Minute)
		require.Equal(b, r.Machine, b.reserve("stage").Machine)
		b.requireStats(Stats{Reserved: 1, Warm: 1})
		require.NoError(b, b.pool.Close(b.Context()))
		b.open()
		m := <-b.claimFor(b.Context(), "stage")
		require.Equal(b, r.Machine, m.id)
		require.NoError(b, b.release(m))
		b.wait(time.Minute)

		b.reserve("another")
		b.restart()
		b.wait(time.Hour)
		require.Zero(b, b.pool.Stats().Reserved)
		b.requireNoReservationOnRecord()
	})
}

// Rule T2: a process died after its transaction claimed a machine and before it removed the
// reservation's record. The reservation does not survive.
func TestAUsedReservationIsNotKept(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 2, KeepWarm: true}, func(b *bubble) {
		m := b.mustClaim() // of the transaction "stage"
		b.wait(time.Minute)
		b.reserve("next")
		records, err := b.pool.records.read()
		require.NoError(b, err)
		for _, r := range records {
			if r.Reserved != nil {
				r.Reserved.Transaction = "stage"
				text, err := json.Marshal(r)
				require.NoError(b, err)
				require.NoError(b, b.pool.Close(b.Context()))
				require.NoError(b, os.WriteFile(b.cfg.Dir+"/"+r.ID+recordSuffix, text, 0o600))
			}
		}
		b.open()
		b.wait(time.Minute)
		b.requireStats(Stats{Claimed: 1, Warm: 1})
		require.NoError(b, b.pool.release(b.Context(), m.id, m.claim.Token, b.healthyCheck))
	})
}

// Rule D6: if a reserved machine dies, its transaction gets the next machine before all others.
func TestADeadReservedMachineIsReplaced(t *testing.T) {
	inBubble(t, PoolConfig{Max: 1}, func(b *bubble) {
		require.Equal(b, 1, b.reserve("stage").Place)
		b.wait(time.Minute)
		first := b.reserve("stage").Machine
		require.NotEmpty(b, first)
		other := b.claimFor(b.Context(), "other")
		b.fake.set(func(f *fakeProvider) { f.dead[first] = true })
		b.wait(5 * time.Minute)
		second := b.reserve("stage").Machine
		require.NotEmpty(b, second)
		require.NotEqual(b, first, second)
		m := <-b.claimFor(b.Context(), "stage")
		require.Equal(b, second, m.id)
		require.NoError(b, b.release(m))
		require.NoError(b, b.release(<-other))
	})
}

// Rule T3: an init that stops after it received its reserved machine leaves the machine to the
// next transaction, and no reservation.
func TestACanceledInitEndsItsReservation(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 1}, func(b *bubble) {
		b.reserve("stage")
		ctx, cancel := context.WithCancel(b.Context())
		l := &notes{before: func(driver.Resource) error {
			cancel()
			return ctx.Err()
		}}
		_, err := b.pool.claim(ctx, &driver.Environment{ID: "stage"}, l, b.healthyCheck)
		require.ErrorIs(b, err, context.Canceled)
		b.requireStats(Stats{Warm: 1})
		b.requireNoReservationOnRecord()
	})
}

// Rule D6: the end of the pool ends reservations and the inits that wait for them.
func TestAClosedPoolReservesNothing(t *testing.T) {
	inBubble(t, PoolConfig{Max: 1}, func(b *bubble) {
		m := b.mustClaim()
		b.reserve("one")
		b.reserve("two")
		two := b.claimFor(b.Context(), "two")
		synctest.Wait()
		require.NoError(b, b.pool.Close(b.Context()))
		require.Nil(b, <-two)
		_, err := b.pool.reserve(b.Context(), "three", time.Hour)
		require.ErrorIs(b, err, errClosed)
		b.open()
		b.wait(time.Minute)
		require.NoError(b, b.pool.release(b.Context(), m.id, m.claim.Token, b.healthyCheck))
	})
}

// openBlind opens the pool with machines of unknown health until see is called, and starts the
// init of a transaction.
func (b *bubble) openBlind(transaction string) (got <-chan *machine, see func()) {
	b.Helper()
	gate := make(chan struct{})
	var err error
	b.pool, err = NewPool(b.fake, b.cfg)
	require.NoError(b, err)
	b.pool.dial = nil
	b.pool.probe = func(ctx context.Context, r *record) error {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
		return b.fake.probe(ctx, r)
	}
	require.NoError(b, b.pool.Start(b.Context()))
	got = b.claimFor(b.Context(), transaction)
	synctest.Wait()
	return got, func() { close(gate) }
}

// Rule D6: an init may come while the health of its machine is unknown. It gets that machine if it
// is healthy, and otherwise another one, before later inits.
func TestAnInitComesBeforeItsMachine(t *testing.T) {
	inBubble(t, PoolConfig{Max: 1, KeepWarm: true}, func(b *bubble) {
		for _, dead := range []bool{false, true} {
			b.reserve("stage")
			b.wait(time.Minute)
			id := b.reserve("stage").Machine
			require.NoError(b, b.pool.Close(b.Context()))
			b.fake.set(func(f *fakeProvider) { f.dead[id] = dead })
			got, see := b.openBlind("stage")
			other := b.claimFor(b.Context(), "other")
			see()
			m := <-got
			require.NotNil(b, m)
			require.Equal(b, dead, m.id != id)
			require.NoError(b, b.release(m))
			require.NoError(b, b.release(<-other))
		}
	})
}

// Rule P1: the end of the pool ends such a wait, too.
func TestAClosedPoolEndsInitsThatWaitForTheirMachine(t *testing.T) {
	inBubble(t, PoolConfig{Max: 1, KeepWarm: true}, func(b *bubble) {
		b.reserve("stage")
		b.wait(time.Minute)
		require.NoError(b, b.pool.Close(b.Context()))
		got, _ := b.openBlind("stage")
		require.NoError(b, b.pool.Close(b.Context()))
		require.Nil(b, <-got)
		b.open()
		b.wait(time.Minute)
	})
}

// Rule T3: an init that stops before its machine is ready leaves no reservation either.
func TestAnInitThatDoesNotWaitForItsMachine(t *testing.T) {
	inBubble(t, PoolConfig{Max: 1, KeepWarm: true}, func(b *bubble) {
		b.reserve("stage")
		b.wait(time.Minute)
		require.NoError(b, b.pool.Close(b.Context()))
		never, see := b.openBlind("another")
		ctx, cancel := context.WithCancel(b.Context())
		got := b.claimFor(ctx, "stage")
		synctest.Wait()
		cancel()
		require.Nil(b, <-got)
		see()
		m := <-never
		require.NotNil(b, m, "no other transaction gets the machine")
		b.requireNoReservationOnRecord()
		require.NoError(b, b.release(m))
	})
}

// Rule T2: a pool without KeepWarm also destroys reserved machines.
func TestTheEndOfAPoolDestroysReservedMachines(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 1}, func(b *bubble) {
		b.reserve("stage")
		require.NoError(b, b.pool.Close(b.Context()))
		require.Zero(b, b.fake.there())
		b.open()
	})
}

// Rule D6: a transaction has reservations in one pool only, the last one it named.
func TestATransactionReservesInOnePool(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 1}, func(b *bubble) {
		cfg := b.cfg
		cfg.Name, cfg.Dir = "big", b.TempDir()
		fake := newFake(2)
		fake.dir = cfg.Dir
		big, err := NewPool(fake, cfg)
		require.NoError(b, err)
		big.probe = fake.probe
		big.dial = nil
		require.NoError(b, big.Start(b.Context()))
		defer func() { require.NoError(b, big.Close(context.Background())) }()
		synctest.Wait()
		d, err := New([]*Pool{b.pool, big})
		require.NoError(b, err)
		for _, name := range []string{"test", "big", "test"} {
			env := &driver.Environment{ID: "stage"}
			env.Network.Options = map[string]string{stage.PoolOption: name}
			r, err := d.Reserve(b.Context(), env, time.Hour)
			require.NoError(b, err)
			require.Equal(b, name, r.Pool)
			synctest.Wait()
			require.Equal(b, 1, b.pool.Stats().Reserved+big.Stats().Reserved)
		}
	})
}
