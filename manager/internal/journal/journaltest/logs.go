package journaltest

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// raw returns a log with a header, without a journal.
func raw(t *testing.T, open Opener) journal.Log {
	t.Helper()
	log, err := open()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, log.Close()) }) // a second Close must succeed too
	h := journal.Header{ID: "log", Body: []byte("1")}
	_, err = log.SetHeader(t.Context(), journal.Header{}, h)
	require.NoError(t, err)
	got, err := log.Header(t.Context())
	require.NoError(t, err)
	require.Equal(t, h, got)
	return log
}

func batch(origin string, counter uint64) journal.Batch {
	return journal.Batch{
		Origin: origin, Counter: counter, Rules: 7, Body: []byte(origin + strconv.Itoa(int(counter))), //nolint:gosec // small
		At: time.Unix(1_700_000_000, 5),
	}
}

func put(t *testing.T, log journal.Log, b journal.Batch) journal.Entry {
	t.Helper()
	e, err := log.Append(t.Context(), "log", b)
	require.NoError(t, err)
	return e
}

func headers(t *testing.T, open Opener) {
	log, err := open()
	require.NoError(t, err)
	h, err := log.Header(t.Context())
	require.NoError(t, err)
	assert.Empty(t, h)
	end, err := log.End(t.Context())
	require.NoError(t, err)
	assert.Empty(t, end.Position)
	assert.Empty(t, end.Log)

	one, two := journal.Header{ID: "x", Body: []byte("\x00one")}, journal.Header{ID: "x", Body: []byte("two")}
	set := func(old, header journal.Header) bool {
		done, err := log.SetHeader(t.Context(), old, header)
		require.NoError(t, err)
		return done
	}
	assert.False(t, set(one, two), "the log has no header yet")
	assert.True(t, set(journal.Header{}, one))
	assert.False(t, set(journal.Header{}, two), "the log has a header")
	assert.False(t, set(two, one), "the current header differs")
	assert.False(t, set(journal.Header{ID: "y", Body: one.Body}, two), "the current header differs")
	assert.True(t, set(one, two))
	require.NoError(t, log.Close())

	log, err = open()
	require.NoError(t, err)
	h, err = log.Header(t.Context())
	require.NoError(t, err)
	assert.Equal(t, two, h)
	end, err = log.End(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "x", end.Log)
	require.NoError(t, log.Ping(t.Context()))
	require.NoError(t, log.Close())
	require.Error(t, log.Ping(t.Context()))
}

func sentAgain(t *testing.T, open Opener) {
	log := raw(t, open)
	first := put(t, log, batch("a", 1))
	assert.Equal(t, first, put(t, log, batch("a", 1)))
	third := put(t, log, batch("a", 3))
	assert.Equal(t, third, put(t, log, batch("a", 3)))
	_, err := log.Append(t.Context(), "log", batch("a", 2))
	require.Error(t, err, "an abandoned batch arrives late")
	assert.NotErrorIs(t, err, journal.ErrRetry)
	assert.Equal(t, uint64(3), put(t, log, batch("b", 1)).Seq)
	if log.Shared() {
		assert.Equal(t, third, put(t, log, batch("a", 3)), "also after another batch")
	}
	entries, err := log.Read(t.Context(), 0)
	require.NoError(t, err)
	assert.Len(t, entries, 3)
}

func times(t *testing.T, open Opener) {
	log := raw(t, open)
	b := batch("a", 1)
	first := put(t, log, b)
	b.Counter, b.At = 2, b.At.Add(-time.Hour)
	second := put(t, log, b)
	assert.False(t, second.At.Before(first.At))
	if log.Shared() {
		end, err := log.End(t.Context())
		require.NoError(t, err)
		assert.False(t, end.Now.Before(second.At))
		return
	}
	assert.Equal(t, first.At, second.At)
	b.Counter, b.At = 3, first.At.Add(time.Nanosecond)
	assert.Equal(t, b.At.UTC(), put(t, log, b).At)
	require.NoError(t, log.Close())
	log, err := open()
	require.NoError(t, err)
	b.Counter, b.At = 4, b.At.Add(-time.Hour)
	assert.Equal(t, first.At.Add(time.Nanosecond), put(t, log, b).At, "of the entry before the restart")
	require.NoError(t, log.Close())
}

func reading(t *testing.T, open Opener) {
	log := raw(t, open)
	var want []journal.Entry
	for i := range uint64(700) {
		want = append(want, put(t, log, batch("a", i+1)))
	}
	var got []journal.Entry
	for len(got) < len(want) {
		entries, err := log.Read(t.Context(), uint64(len(got)))
		require.NoError(t, err)
		require.NotEmpty(t, entries)
		got = append(got, entries...)
	}
	require.Equal(t, want, got)
	for i, e := range got {
		assert.Equal(t, uint64(i+1), e.Seq) //nolint:gosec // small
		if i > 0 {
			assert.Equal(t, got[i-1].Token, e.Prev)
		}
	}
	end, err := log.End(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want[699].Position, end.Position)
	entries, err := log.Read(t.Context(), 700)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func snapshots(t *testing.T, open Opener) {
	log := raw(t, open)
	s, err := log.Snapshot(t.Context())
	require.NoError(t, err)
	assert.Empty(t, s)
	var entries []journal.Entry
	for i := range uint64(10) {
		entries = append(entries, put(t, log, batch("a", i+1)))
	}
	save := func(id string, n int) journal.Snapshot {
		release, err := log.Lead(t.Context())
		require.NoError(t, err)
		defer release()
		s := journal.Snapshot{ID: id, Position: entries[n].Position, At: entries[n].At, Saved: time.Unix(5, 0).UTC(), Rules: 3, Size: 8, Chunks: 2}
		for i := range 2 {
			require.NoError(t, log.PutChunk(t.Context(), id, i, []byte(id+strconv.Itoa(i))))
		}
		require.NoError(t, log.Commit(t.Context(), s))
		return s
	}
	is := func(want journal.Snapshot) {
		t.Helper()
		got, err := log.Snapshot(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, got)
		for i := range 2 {
			b, err := log.Chunk(t.Context(), want.ID, i)
			require.NoError(t, err)
			assert.Equal(t, want.ID+strconv.Itoa(i), string(b))
		}
		rest, err := log.Read(t.Context(), want.Seq)
		require.NoError(t, err)
		if want.Seq < uint64(len(entries)) {
			assert.Equal(t, entries[want.Seq:], rest)
		} else {
			assert.Empty(t, rest)
		}
	}
	one := save("one", 3)
	is(one)
	left, err := log.Read(t.Context(), 0)
	require.NoError(t, err)
	if log.Shared() {
		assert.Equal(t, entries, left, "other processes may not have read it")
	} else {
		assert.Equal(t, entries[4:], left, "the entries that it covers are dropped")
	}
	save("late", 1)
	is(one)
	_, err = log.Chunk(t.Context(), "late", 0)
	require.ErrorIs(t, err, journal.ErrMoved)
	is(save("two", 9))
	_, err = log.Chunk(t.Context(), "one", 0)
	require.ErrorIs(t, err, journal.ErrMoved)
	left, err = log.Read(t.Context(), 0)
	require.NoError(t, err)
	if log.Shared() {
		assert.Equal(t, entries[4:], left)
	} else {
		assert.Empty(t, left)
	}
	end, err := log.End(t.Context())
	require.NoError(t, err)
	assert.Equal(t, entries[9].Position, end.Position, "it stays when all previous entries are dropped")

	// A process that dies before Commit changes nothing.
	entries = append(entries, put(t, log, batch("a", 11)))
	require.NoError(t, log.PutChunk(t.Context(), "half", 0, []byte("half")))
	require.NoError(t, log.Close())
	log, err = open()
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	got, err := log.Snapshot(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "two", got.ID)
	is(got)
	next := put(t, log, batch("b", 1))
	assert.Equal(t, uint64(12), next.Seq)
	assert.False(t, next.At.Before(entries[10].At))
}

func keys(t *testing.T, open Opener) {
	try := func(change func(*journal.Config[Command])) error {
		log, err := open()
		require.NoError(t, err)
		cfg := Config(log)
		change(&cfg)
		j, err := openJournal(cfg)
		if err != nil {
			return err
		}
		defer func() { assert.NoError(t, j.Close()) }()
		assert.Subset(t, j.IDs(), []string{"a"})
		return nil
	}
	first, second, third := bytes.Repeat([]byte("1"), 16), bytes.Repeat([]byte("2"), 32), bytes.Repeat([]byte("3"), 64)
	with := func(keys ...[]byte) func(*journal.Config[Command]) {
		return func(c *journal.Config[Command]) { c.Keys = keys }
	}
	unsealed := func(c *journal.Config[Command]) { c.Keys, c.Unsealed = nil, true }
	require.ErrorIs(t, try(with()), journal.ErrKeys)
	require.ErrorIs(t, try(with([]byte("short"))), journal.ErrKeys)
	j := Open(t, open, with(first))
	j.Add(t, "a")
	require.NoError(t, j.Compact(t.Context()))
	j.Add(t, "b")
	require.NoError(t, j.Close())
	require.NoError(t, try(with(first)))
	require.ErrorIs(t, try(with(second)), journal.ErrKeys)
	require.ErrorIs(t, try(unsealed), journal.ErrKeys)
	require.NoError(t, try(with(second, first)), "the second one is added")
	require.NoError(t, try(with(second)))
	require.NoError(t, try(with(third, second)))
	require.NoError(t, try(with(third)))
	require.NoError(t, try(with(first)), "each stays valid")
}

func sealing(t *testing.T, open Opener) {
	const secret = "unreadable test value"
	j := Open(t, open)
	for _, id := range []string{secret + "1", secret + "2", secret + "3"} {
		j.Add(t, id)
	}
	require.NoError(t, j.Close())
	reads := func(change func([]journal.Entry)) error {
		log, err := open()
		require.NoError(t, err)
		_, err = openJournal(Config(spoilt{log, change}))
		return err
	}
	seen := false
	require.ErrorIs(t, reads(func(entries []journal.Entry) {
		for _, e := range entries {
			seen = true
			assert.NotContains(t, string(e.Body), "nobody")
		}
		entries[1].Body, entries[2].Body = entries[2].Body, entries[1].Body
	}), journal.ErrDamaged, "two entries that changed places")
	require.True(t, seen)
	for what, change := range map[string]func([]journal.Entry){
		"another origin":  func(e []journal.Entry) { e[0].Origin = "x" },
		"another counter": func(e []journal.Entry) { e[2].Counter = 9 },
		"other rules":     func(e []journal.Entry) { e[0].Rules = -1 },
		"the same entry twice": func(e []journal.Entry) {
			p, prev := e[1].Position, e[1].Prev
			e[1] = e[0]
			e[1].Position, e[1].Prev = p, prev
		},
		"cut off": func(e []journal.Entry) { e[0].Body = e[0].Body[:3] },
	} {
		require.ErrorIs(t, reads(change), journal.ErrDamaged, what)
	}
}

// cut reports a saved state with one part less.
type cut struct{ journal.Log }

func (c cut) Snapshot(ctx context.Context) (journal.Snapshot, error) {
	s, err := c.Log.Snapshot(ctx)
	s.Chunks--
	return s, err
}

// A large state has several parts. The journal refuses it if one is missing.
func parts(t *testing.T, open Opener) {
	j := Open(t, open)
	long := strings.Repeat("x", 300<<10)
	j.Add(t, long+"1")
	j.Add(t, long+"2")
	require.NoError(t, j.Compact(t.Context()))
	assert.Greater(t, j.Stats().Snapshot.Chunks, 2)
	saved := j.Saved()
	require.NoError(t, j.Close())
	log, err := open()
	require.NoError(t, err)
	_, err = openJournal(Config(cut{log}))
	require.ErrorIs(t, err, journal.ErrDamaged)
	assert.ErrorContains(t, err, "part")
	assert.Equal(t, saved, Open(t, open).Saved())
}
