package vm

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
)

// Rule T3: a cleanup between the ledger's record and the claim cancels the claim, and costs no
// machine.
func TestACleanupBeforeAClaimTakesEffectWins(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 1}, func(b *bubble) {
		l := &notes{}
		l.before = func(r driver.Resource) error {
			var data machineData
			require.NoError(b, json.Unmarshal(r.Data, &data))
			return b.pool.release(b.Context(), r.ID, data.Claim, b.healthyCheck)
		}
		_, err := b.claim(b.Context(), l)
		require.ErrorContains(b, err, "has been cleaned up")
		b.requireStats(Stats{Warm: 1})
		require.Equal(b, 1, b.fake.created)
	})
}

// Rule T2: a claim that the ledger does not record has no effect.
func TestAClaimThatIsNotOnRecordHasNoEffect(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 1}, func(b *bubble) {
		refused := errors.New("the ledger is full")
		_, err := b.claim(b.Context(), &notes{before: func(driver.Resource) error { return refused }})
		require.ErrorIs(b, err, refused)
		b.requireStats(Stats{Warm: 1})
		require.Equal(b, warm, b.record(b.only()).Phase)
	})
}

// Rule T2: a claim that the disk rejects is not recorded. That holds even if the disk wrote it in
// spite of the error, and for any result of the next write.
func TestAFailedClaimIsNotOnRecord(t *testing.T) {
	for name, faults := range map[string]int{"it can be undone": 1, "it cannot": 2} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, PoolConfig{Min: 1, Max: 1, KeepWarm: true}, func(b *bubble) {
				machine := b.only()
				b.pool.records = &doubtful{records: b.pool.records, faults: faults}
				_, err := b.claim(b.Context(), &notes{})
				require.ErrorIs(b, err, errUnlucky)
				b.wait(time.Minute)
				b.restart()
				b.requireStats(Stats{Warm: 1})
				require.Equal(b, faults == 1, machine == b.only())
			})
		})
	}
}

// doubtful is a disk that may write a record and still report an error.
type doubtful struct {
	records
	faults int
}

func (d *doubtful) write(r *record, durable bool) error {
	err := d.records.write(r, durable)
	if d.faults--; err == nil && d.faults >= 0 {
		err = errUnlucky
	}
	return err
}

// Rule D6: a machine stays healthy when its transaction gives up.
func TestAnEndedClaimCostsNoMachine(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 1}, func(b *bubble) {
		ctx, cancel := context.WithCancel(b.Context())
		_, err := b.pool.claim(ctx, &driver.Environment{ID: "stage"}, &notes{}, func(ctx context.Context, _ *machine, _ *record) error {
			cancel()
			return ctx.Err()
		})
		require.ErrorIs(b, err, context.Canceled)
		b.requireStats(Stats{Warm: 1})
		require.Equal(b, 1, b.fake.created)
	})
}

// Rule T2: a claim that fails while the pool is being closed leaves no machine.
func TestAClaimAtTheEndLeavesNothing(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 1}, func(b *bubble) {
		closed := make(chan error, 1)
		_, err := b.claim(b.Context(), &notes{before: func(driver.Resource) error {
			go func() { closed <- b.pool.Close(b.Context()) }()
			return pass(b.Context(), time.Second)
		}})
		require.ErrorIs(b, err, errClosed)
		require.NoError(b, <-closed)
		require.Zero(b, b.fake.there())
		b.open()
	})
}

// Rule T6: a claimed machine without a cleanup is destroyed.
func TestAClaimEndsWithItsLease(t *testing.T) {
	inBubble(t, PoolConfig{Max: 1, Lease: time.Hour}, func(b *bubble) {
		m := b.mustClaim()
		held, err := b.pool.hold(m.id, m.claim.Token)
		require.NoError(b, err)
		b.wait(2 * time.Hour)
		b.requireStats(Stats{Claimed: 1})
		held.done()
		b.wait(50 * time.Minute)
		b.requireStats(Stats{Claimed: 1})
		b.wait(11 * time.Minute)
		b.requireStats(Stats{})
	})
}

// Rule T2: a transaction's ledger is enough to destroy a machine that the pool's directory has
// lost.
func TestARecordOfATransactionIsEnough(t *testing.T) {
	inBubble(t, PoolConfig{Max: 2, SweepInterval: time.Hour}, func(b *bubble) {
		b.wait(time.Second)
		lost := newID()
		b.fake.set(func(f *fakeProvider) { f.owned[lost] = "somebody" })
		require.NoError(b, b.pool.release(b.Context(), lost, newID(), b.healthyCheck))
		require.Zero(b, b.fake.there())
		require.Error(b, b.pool.release(b.Context(), "../../etc", newID(), b.healthyCheck))
		require.Error(b, b.pool.release(b.Context(), "", "", b.healthyCheck))
	})
}
