package journaltest

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// fragile is a ledger that panics after it has applied a command whose ID begins with
// "bang", and cannot decode one whose ID begins with "lost". Once limits the number of
// panics to one.
type fragile struct {
	*Ledger
	once     bool
	panicked *atomic.Int32
}

func (f fragile) Apply(at time.Time, c Command, own bool) any {
	r := f.Ledger.Apply(at, c, own)
	if strings.HasPrefix(c.ID, "bang") && (f.panicked.Add(1) == 1 || !f.once) {
		panic("bang")
	}
	return r
}

func (f fragile) Decode(b []byte) (Command, error) {
	c, err := f.Ledger.Decode(b)
	if strings.HasPrefix(c.ID, "lost") {
		return c, context.DeadlineExceeded
	}
	return c, err
}

// openFragile opens a journal whose machine is fragile.
func openFragile(t *testing.T, open Opener, once bool) Journal {
	t.Helper()
	log, err := open()
	require.NoError(t, err)
	cfg, panicked := Config(log), &atomic.Int32{}
	cfg.New = func() journal.Machine[Command] { return fragile{NewLedger(), once, panicked} }
	live := fragile{NewLedger(), once, panicked}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	j, err := journal.Open(ctx, cfg, journal.Machine[Command](live))
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() }) // the test may have closed it
	return Journal{j, live.Ledger}
}

// A command that panics would stop every process at every start. It fails alone, its
// half-done change is undone, and a later version of the program leaves it out too.
func setAside(t *testing.T, open Opener) {
	j := openFragile(t, open, false)
	j.Add(t, "a")
	for _, id := range []string{"bang-1", "lost-1", "bang-2"} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := j.Do(ctx, Command{ID: id, Account: "a", Add: 100})
		cancel()
		require.ErrorIs(t, err, journal.ErrSetAside, id)
	}
	j.Add(t, "b")
	require.NoError(t, j.Ping(t.Context()))
	assert.Equal(t, []string{"a", "b"}, j.IDs())
	assert.Equal(t, 3, j.Stats().SetAside)
	require.NoError(t, j.Close())

	mended := Open(t, open)
	assert.Equal(t, []string{"a", "b"}, mended.IDs(), "a version that could execute them leaves them out")
	assert.Equal(t, 3, mended.Stats().SetAside)
	require.NoError(t, mended.Close())

	again := openFragile(t, open, false)
	again.Add(t, "c")
	require.NoError(t, again.Compact(t.Context()))
	assert.Equal(t, []string{"a", "b", "c"}, again.IDs())
}

// A panic that does not repeat is an accident of one process. Setting the command aside
// would separate its state from the others.
func accident(t *testing.T, open Opener) {
	j := openFragile(t, open, true)
	j.Add(t, "a")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := j.Do(ctx, Command{ID: "bang", Account: "a", Add: 1})
	require.NoError(t, err)
	j.Add(t, "b")
	assert.Equal(t, []string{"a", "bang", "b"}, j.IDs())
	assert.Zero(t, j.Stats().SetAside)
	assert.Empty(t, j.Faults())
}

// A log in which an earlier version has left a command that panics is opened.
func poisoned(t *testing.T, open Opener) {
	j := Open(t, open)
	j.Add(t, "a")
	j.AddMany(t, "bang", 5) // some of them in one entry
	j.Add(t, "b")
	require.NoError(t, j.Close())
	assert.Equal(t, []string{"a", "b"}, openFragile(t, open, false).IDs())
}
