package journal_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/internal/journal/journaltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fresh(testing.TB) journaltest.Opener { return journaltest.NewMemory().Open }

// The journal on a log without faults.
func TestOnMemory(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, fresh)
}

// Rule Q4: the log loses its end at random times. All processes converge to its
// content.
func TestOnLosingMemory(t *testing.T) {
	t.Parallel()
	journaltest.RunLosing(t)
}

// Rule Q7: without a log the state is in memory, with the same guarantees.
func TestWithoutALog(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	ledger := journaltest.NewLedger()
	j, err := journal.Open(t.Context(), journal.Config[journaltest.Command]{Now: func() time.Time { return now }}, ledger)
	require.NoError(t, err)
	var work sync.WaitGroup
	for _, id := range []string{"a", "b", "c"} {
		work.Go(func() {
			_, err := j.Do(t.Context(), journaltest.Command{ID: id})
			assert.NoError(t, err)
		})
	}
	work.Wait()
	now = now.Add(-time.Hour)
	r, err := j.Do(t.Context(), journaltest.Command{ID: "d"})
	require.NoError(t, err)
	assert.Equal(t, time.Unix(1000, 0), r.(journaltest.Receipt).At, "time never goes backward")
	assert.Empty(t, ledger.Faults())
	assert.Equal(t, 4, ledger.Own())
	require.NoError(t, j.Sync(t.Context()))
	require.NoError(t, j.Ping(t.Context()))
	require.NoError(t, j.Compact(t.Context()))
	require.NoError(t, j.Close())
	require.NoError(t, j.Close())
	_, err = j.Do(t.Context(), journaltest.Command{ID: "e"})
	require.ErrorIs(t, err, journal.ErrClosed)
	require.ErrorIs(t, j.Ping(t.Context()), journal.ErrClosed)
	require.ErrorIs(t, j.Compact(t.Context()), journal.ErrClosed)
}

// fuse panics in the middle of a command.
type fuse struct{ *journaltest.Ledger }

func (f fuse) Apply(at time.Time, c journaltest.Command, own bool) any {
	if c.ID == "bang" {
		panic("bang")
	}
	return f.Ledger.Apply(at, c, own)
}

// A program that recovers from a panic, like a web server, must not continue with an
// incomplete state.
func TestTheJournalFailsAfterAPanic(t *testing.T) {
	t.Parallel()
	j, err := journal.Open(t.Context(), journal.Config[journaltest.Command]{}, fuse{journaltest.NewLedger()})
	require.NoError(t, err)
	_, err = j.Do(t.Context(), journaltest.Command{ID: "a"})
	require.NoError(t, err)
	assert.Panics(t, func() { _, _ = j.Do(t.Context(), journaltest.Command{ID: "bang"}) })
	_, err = j.Do(t.Context(), journaltest.Command{ID: "b"})
	require.ErrorIs(t, err, journal.ErrUnavailable)
	require.ErrorContains(t, err, "panicked; restart")
	require.Error(t, j.Ping(t.Context()))
	require.NoError(t, j.Close())
}

func TestAMachineWithoutStateIsRequired(t *testing.T) {
	t.Parallel()
	log, err := fresh(t)()
	require.NoError(t, err)
	cfg := journaltest.Config(log)
	cfg.New = nil
	_, err = journal.Open(t.Context(), cfg, journaltest.NewMachine())
	require.ErrorContains(t, err, "Config.New is missing")
	require.ErrorIs(t, log.Ping(t.Context()), journal.ErrClosed, "the log is closed")
}

// A process stalls so long that other processes drop entries that it has not read. It
// must return to the correct state.
func TestAStalledProcessReturnsToTheCorrectState(t *testing.T) {
	t.Parallel()
	log := journaltest.NewMemory()
	held := &asleep{awake: make(chan struct{})}
	behind := journaltest.Open(t, func() (journal.Log, error) {
		var err error
		held.Log, err = log.Open()
		return held, err
	})
	ahead := journaltest.Open(t, log.Open)
	for _, id := range []string{"a", "b", "c"} {
		ahead.AddMany(t, id, 5)
		require.NoError(t, ahead.Compact(t.Context()))
	}
	assert.Empty(t, behind.IDs())
	close(held.awake)
	journaltest.Agree(t, ahead, behind)
	assert.Len(t, behind.IDs(), 17)
}

// asleep blocks reads until awake is closed.
type asleep struct {
	journal.Log
	awake chan struct{}
}

func (a *asleep) Read(ctx context.Context, after uint64) ([]journal.Entry, error) {
	select {
	case <-a.awake:
		return a.Log.Read(ctx, after)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A log that was long for a short time becomes short again, although it does not grow any
// more.
func TestTheStateIsSavedAfterATime(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, fresh(t), func(c *journal.Config[journaltest.Command]) { c.CompactEvery = 10 * time.Millisecond })
	_, err := j.Do(t.Context(), journaltest.Command{ID: "a", Pad: make([]byte, 2<<20)})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return j.Stats().Snapshot.ID != "" }, 10*time.Second, time.Millisecond)
}
