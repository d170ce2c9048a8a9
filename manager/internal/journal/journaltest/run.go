package journaltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// Opener opens a log. It opens the same log each time.
type Opener func() (journal.Log, error)

// Run runs the suite. fresh returns an Opener of an empty log.
func Run(t *testing.T, fresh func(testing.TB) Opener) {
	for name, test := range map[string]func(*testing.T, Opener){
		"a header is created once and changed only by a process that knows it": headers,
		"a batch that is sent again is stored once":                            sentAgain,
		"time never goes backward":                                             times,
		"entries are read in their order":                                      reading,
		"a saved state replaces the entries that it covers":                    snapshots,
		"applied commands are restored":                                        reopening,
		"one failing command fails alone":                                      alone,
		"a command whose context has ended is not applied":                     impatient,
		"a closed journal accepts no commands":                                 closing,
		"each key opens it":                                                    keys,
		"stored data cannot be read":                                           sealing,
		"newer rules are refused":                                              rules,
		"a large state is in parts":                                            parts,
		"the state is saved at times":                                          compacting,
		"a command that panics is set aside":                                   setAside,
		"a panic that does not repeat loses nothing":                           accident,
		"a log with commands that panic is opened":                             poisoned,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, fresh(t))
		})
	}
	t.Run("histories", func(t *testing.T) {
		t.Parallel()
		histories(t, func(tb testing.TB) (Opener, func(int)) { return fresh(tb), nil })
	})
}

// RunLosing tests journals on a [Memory] that loses its end at random times.
func RunLosing(t *testing.T) {
	histories(t, func(testing.TB) (Opener, func(int)) {
		m := NewMemory()
		return m.Open, m.Lose
	})
}

// Key is the key of test logs.
var Key = []byte(strings.Repeat("test only ", 4))

// Config returns the configuration of a test journal.
func Config(log journal.Log) journal.Config[Command] {
	return journal.Config[Command]{Log: log, New: NewMachine, Keys: [][]byte{Key}}
}

// Journal is a journal with its machine.
type Journal struct {
	*journal.Journal[Command]
	*Ledger
}

// Open opens a journal and closes it when the test ends.
func Open(tb testing.TB, open Opener, change ...func(*journal.Config[Command])) Journal {
	tb.Helper()
	log, err := open()
	require.NoError(tb, err)
	cfg := Config(log)
	for _, c := range change {
		c(&cfg)
	}
	j, err := openJournal(cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, j.Close()) })
	return j
}

func openJournal(cfg journal.Config[Command]) (Journal, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ledger := NewLedger()
	j, err := journal.Open(ctx, cfg, ledger)
	return Journal{j, ledger}, err
}

// patience bounds each wait in a test, so that the test fails instead of hanging.
const patience = time.Minute

// Add applies a command with this ID.
func (j Journal) Add(tb testing.TB, id string) Receipt {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := j.Do(ctx, Command{ID: id, Account: "a", Add: 1})
	require.NoError(tb, err)
	return r.(Receipt)
}

// AddMany applies n commands at the same time.
func (j Journal) AddMany(tb testing.TB, prefix string, n int) {
	tb.Helper()
	var wg sync.WaitGroup
	errs := make([]error, n)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range n {
		wg.Go(func() {
			_, errs[i] = j.Do(ctx, Command{ID: prefix + strconv.Itoa(i), Account: prefix, Add: 1, Pad: make([]byte, 100)})
		})
	}
	wg.Wait()
	require.NoError(tb, errors.Join(errs...))
}

func reopening(t *testing.T, open Opener) {
	j := Open(t, open)
	j.AddMany(t, "a", 100)
	r := j.Add(t, "last")
	assert.Equal(t, 100, r.Place)
	assert.Equal(t, 101, j.Own())
	saved := j.Saved()
	require.NoError(t, j.Close())
	_, err := j.Do(t.Context(), Command{ID: "x"})
	require.ErrorIs(t, err, journal.ErrClosed)
	require.ErrorIs(t, j.Sync(t.Context()), journal.ErrClosed)

	j = Open(t, open)
	assert.Equal(t, saved, j.Saved())
	assert.Zero(t, j.Own(), "entries that are read again are not applied again")
	assert.False(t, j.Now().Before(r.At))
	assert.Equal(t, 101, j.Add(t, "more").Place)
	require.NoError(t, j.Compact(t.Context()))
	assert.Positive(t, j.Stats().Snapshot.Size)
	assert.Zero(t, j.Stats().Entries)
	require.NoError(t, j.Compact(t.Context()), "with nothing new")
	saved = j.Saved()
	position := j.Stats().Position
	require.NoError(t, j.Close())

	j = Open(t, open)
	assert.Equal(t, saved, j.Saved(), "of the saved state")
	assert.Equal(t, position, j.Stats().Position)
	assert.Equal(t, 102, j.Add(t, "and more").Place)
	assert.Empty(t, j.Faults())
	require.NoError(t, j.Ping(t.Context()))
	require.NoError(t, j.Sync(t.Context()))
}

func alone(t *testing.T, open Opener) {
	j := Open(t, open)
	var wg sync.WaitGroup
	wg.Go(func() { j.AddMany(t, "a", 50) })
	_, err := j.Do(t.Context(), Command{})
	require.ErrorIs(t, err, ErrNotEncodable)
	_, err = j.Do(t.Context(), Command{ID: "large", Pad: make([]byte, 64<<20)})
	require.ErrorIs(t, err, journal.ErrTooLarge)
	wg.Wait()
	r, err := j.Do(t.Context(), Command{ID: "larger than a batch", Pad: make([]byte, 3<<20)})
	require.NoError(t, err)
	assert.Equal(t, 50, r.(Receipt).Place)
}

func impatient(t *testing.T, open Opener) {
	log, err := open()
	require.NoError(t, err)
	held := newGate(log)
	j := Open(t, func() (journal.Log, error) { return held, nil })
	ctx, cancel := context.WithCancelCause(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := j.Do(ctx, Command{ID: "sent"})
		first <- err
	}()
	<-held.at
	second := make(chan error, 1)
	go func() {
		_, err := j.Do(ctx, Command{ID: "not sent"})
		second <- err
	}()
	require.Eventually(t, func() bool { return j.Stats().Pending == 1 }, patience, time.Millisecond)
	why := errors.New("the context has ended")
	cancel(why)
	for _, c := range []chan error{first, second} {
		err := <-c
		require.ErrorIs(t, err, journal.ErrUnavailable)
		require.ErrorIs(t, err, why)
	}
	close(held.pass)
	j.Add(t, "next")
	assert.Equal(t, []string{"sent", "next"}, j.IDs())
}

func closing(t *testing.T, open Opener) {
	log, err := open()
	require.NoError(t, err)
	held := newGate(log)
	j := Open(t, func() (journal.Log, error) { return held, nil })
	sent, waiting := make(chan error, 1), make(chan error, 1)
	do := func(id string, c chan error) {
		_, err := j.Do(context.Background(), Command{ID: id})
		c <- err
	}
	go do("sent", sent)
	<-held.at
	go do("waiting", waiting)
	require.Eventually(t, func() bool { return j.Stats().Pending == 1 }, patience, time.Millisecond)
	closed := make(chan error, 1)
	go func() { closed <- j.Close() }()
	require.ErrorIs(t, <-waiting, journal.ErrClosed)
	close(held.pass)
	require.NoError(t, <-sent, "sent commands are finished")
	require.NoError(t, <-closed)
	assert.Equal(t, []string{"sent"}, Open(t, open).IDs())
}

func rules(t *testing.T, open Opener) {
	withRules := func(n int) func(*journal.Config[Command]) {
		return func(c *journal.Config[Command]) { c.Rules = n }
	}
	j := Open(t, open, withRules(2))
	j.Add(t, "a")
	require.NoError(t, j.Close())
	refused := func() {
		log, err := open()
		require.NoError(t, err)
		cfg := Config(log)
		cfg.Rules = 1
		_, err = openJournal(cfg)
		require.ErrorIs(t, err, journal.ErrNewer)
		assert.ErrorContains(t, err, "rules 2, this program knows rules up to 1")
	}
	refused()
	j = Open(t, open, withRules(3))
	assert.Equal(t, []string{"a"}, j.IDs())
	require.NoError(t, j.Compact(t.Context()))
	require.NoError(t, j.Close())
	log, err := open()
	require.NoError(t, err)
	cfg := Config(log)
	cfg.Rules = 2
	_, err = openJournal(cfg)
	require.ErrorIs(t, err, journal.ErrNewer, "of the saved state")
}

// Rule Q4: nothing is lost while a journal saves the state.
func compacting(t *testing.T, open Opener) {
	j := Open(t, open, func(c *journal.Config[Command]) { c.CompactAfter = 4 << 10 })
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 100 {
				j.Add(t, fmt.Sprint(w, "-", i))
			}
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool { return j.Stats().Snapshot.ID != "" }, patience, time.Millisecond)
	assert.Empty(t, j.Faults())
	assert.Len(t, j.IDs(), 400)
	saved := j.Saved()
	require.NoError(t, j.Close())
	j = Open(t, open)
	assert.Equal(t, saved, j.Saved())
	assert.Less(t, j.Stats().Entries, int64(400))
}

// gate blocks Append.
type gate struct {
	journal.Log
	at   chan struct{} // receives a value when Append is called
	pass chan struct{} // closed to release all calls
}

func newGate(log journal.Log) *gate {
	return &gate{log, make(chan struct{}, 1), make(chan struct{})}
}

func (g *gate) Append(ctx context.Context, log string, b journal.Batch) (journal.Entry, error) {
	select {
	case g.at <- struct{}{}:
	default:
	}
	<-g.pass
	return g.Log.Append(ctx, log, b)
}

// spoilt modifies entries that are read.
type spoilt struct {
	journal.Log
	change func([]journal.Entry)
}

func (s spoilt) Read(ctx context.Context, after uint64) ([]journal.Entry, error) {
	entries, err := s.Log.Read(ctx, after)
	entries = slices.Clone(entries)
	s.change(entries)
	return entries, err
}
