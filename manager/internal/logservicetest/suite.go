// Package logservicetest is a conformance suite for implementations of
// livelog.Streams:
//
//	func TestStreams(t *testing.T) {
//		logservicetest.Run(t, func(t *testing.T) logservicetest.Opener {
//			return func() (livelog.Streams, error) { return redis.OpenStreams(...) }
//		})
//	}
//
// Start reading at suite.go; model.go compares random histories with a model.
package logservicetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// Opener opens streams. In a durable implementation, each call finds the streams of the
// previous call, even if they were not closed; see [Volatile].
type Opener func() (livelog.Streams, error)

// Option changes the requirements of the suite.
type Option func(*options)

type options struct{ volatile bool }

// Volatile declares that streams are lost when they are closed.
func Volatile() Option { return func(o *options) { o.volatile = true } }

// Run runs the suite. It calls fresh for each case; fresh returns an Opener of an empty
// store.
func Run(t *testing.T, fresh func(t *testing.T) Opener, with ...Option) {
	var o options
	for _, f := range with {
		f(&o)
	}
	for _, c := range []struct {
		name string
		run  func(*testing.T, livelog.Streams)
	}{
		{"a stream is opened, written, closed and removed", life},
		{"a repeated call changes nothing", repetitions},
		{"a writer that is ahead gets the number of the next line", ahead},
		{"a batch is accepted whole or refused whole", tooLong},
		{"a stream begins anew as another run", runs},
		{"logs are independent", apart},
		{"an archive is on record", archives},
		{"watchers learn of every change", watching},
		{"a long stream is read from any line", anyLine},
		{"many writers and readers work at once", crowd},
		{"a closed store refuses every call", ending},
		{"a stream has a limit of writers", manyWriters},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open(t, fresh(t)))
		})
	}
	t.Run("random histories match the model", func(t *testing.T) {
		t.Parallel()
		histories(t, fresh, o.volatile)
	})
}

func open(t *testing.T, o Opener) livelog.Streams {
	t.Helper()
	s, err := o()
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

const plenty = 1 << 40

var id = livelog.ID{Account: "acc", Key: "run/1:step"}

// lines returns lines with these texts as JSON strings. The first line has pos first.
func lines(first int64, texts ...string) (out []livelog.Line) {
	for i, text := range texts {
		raw, _ := json.Marshal(text)
		out = append(out, livelog.Line{Raw: raw, Pos: first + int64(i)})
	}
	return out
}

func put(t *testing.T, s livelog.Streams, id livelog.ID, writer string, first int64, texts ...string) {
	t.Helper()
	require.NoError(t, s.Append(t.Context(), id, livelog.Batch{Writer: writer, Lines: lines(first, texts...), MaxStream: plenty}))
}

func state(t *testing.T, s livelog.Streams, id livelog.ID) livelog.State {
	t.Helper()
	st, err := s.State(t.Context(), id)
	require.NoError(t, err)
	return st
}

// all reads a stream and checks the line numbers.
func all(t *testing.T, s livelog.Streams, id livelog.ID, from int64) (texts []string) {
	t.Helper()
	st := state(t, s, id)
	for next := from; ; {
		part, err := s.Read(t.Context(), id, st.Run, next)
		require.NoError(t, err)
		if len(part) == 0 {
			return texts
		}
		for _, l := range part {
			require.Equal(t, next, l.Pos)
			next++
			var text string
			require.NoError(t, json.Unmarshal(l.Raw, &text))
			texts = append(texts, text)
		}
	}
}

func life(t *testing.T, s livelog.Streams) {
	_, err := s.State(t.Context(), id)
	require.ErrorIs(t, err, livelog.ErrUnknown)
	require.ErrorIs(t, s.Finish(t.Context(), id, false), livelog.ErrUnknown)
	require.NoError(t, s.Start(t.Context(), id, ""))
	st := state(t, s, id)
	assert.True(t, st.Open)
	assert.Zero(t, st.Lines)
	assert.Empty(t, all(t, s, id, 0))
	put(t, s, id, "", 0, "a", "b")
	put(t, s, id, "", 2, "c")
	assert.Equal(t, []string{"a", "b", "c"}, all(t, s, id, 0))
	assert.Equal(t, []string{"c"}, all(t, s, id, 2))
	assert.Empty(t, all(t, s, id, 3))
	assert.Empty(t, all(t, s, id, 100))
	require.NoError(t, s.Finish(t.Context(), id, false))
	st = state(t, s, id)
	assert.False(t, st.Open)
	assert.EqualValues(t, 3, st.Lines)
	assert.Positive(t, st.Size)
	assert.False(t, st.Touched.IsZero())
	put(t, s, id, "", 3, "d")
	assert.True(t, state(t, s, id).Open, "a complete log is open again")
	assert.Equal(t, []string{"a", "b", "c", "d"}, all(t, s, id, 0))
	own, total := s.Usage(id.Account)
	assert.Equal(t, livelog.Usage{Logs: 1, Size: state(t, s, id).Size}, own)
	assert.Equal(t, own, total)
	own, total = s.Usage("another")
	assert.Zero(t, own)
	assert.Equal(t, 1, total.Logs)
	require.NoError(t, s.Sync())
	require.NoError(t, s.Remove(t.Context(), id, st.Run))
	require.NoError(t, s.Remove(t.Context(), id, st.Run))
	_, err = s.State(t.Context(), id)
	require.ErrorIs(t, err, livelog.ErrUnknown)
	own, total = s.Usage(id.Account)
	assert.Zero(t, own)
	assert.Zero(t, total)
}

func repetitions(t *testing.T, s livelog.Streams) {
	require.NoError(t, s.Start(t.Context(), id, "w1"))
	put(t, s, id, "w1", 0, "a")
	require.NoError(t, s.Start(t.Context(), id, "w1"))
	put(t, s, id, "w1", 0, "a", "b")
	put(t, s, id, "w2", 0, "other")
	put(t, s, id, "w1", 1, "b", "c")
	put(t, s, id, "w1", 7, "gaps are the writer's")
	want := []string{"a", "b", "other", "c", "gaps are the writer's"}
	assert.Equal(t, want, all(t, s, id, 0))
	require.NoError(t, s.Finish(t.Context(), id, false))
	require.NoError(t, s.Finish(t.Context(), id, false))
	put(t, s, id, "w1", 0, "a", "b", "c")
	require.NoError(t, s.Start(t.Context(), id, "w1"))
	assert.False(t, state(t, s, id).Open, "it was complete already")
	assert.Equal(t, want, all(t, s, id, 0))
}

func ahead(t *testing.T, s livelog.Streams) {
	behind := func(writer string, next int64) int64 {
		err := s.Append(t.Context(), id, livelog.Batch{
			Writer: writer, Next: next, Lines: lines(next, "x"), MaxStream: plenty,
		})
		var b *livelog.BehindError
		require.ErrorAs(t, err, &b)
		return b.Next
	}
	assert.EqualValues(t, 0, behind("w1", 3))
	_, err := s.State(t.Context(), id)
	require.ErrorIs(t, err, livelog.ErrUnknown, "a refused batch leaves nothing")
	put(t, s, id, "w1", 0, "a", "b")
	assert.EqualValues(t, 2, behind("w1", 3))
	assert.EqualValues(t, 0, behind("w2", 1))
	require.NoError(t, s.Append(t.Context(), id, livelog.Batch{
		Writer: "w1", Next: 1, Lines: lines(1, "b", "c"), MaxStream: plenty,
	}))
	assert.Equal(t, []string{"a", "b", "c"}, all(t, s, id, 0))
}

func tooLong(t *testing.T, s livelog.Streams) {
	long := strings.Repeat("x", 1000)
	limited := func(texts ...string) error {
		return s.Append(t.Context(), id, livelog.Batch{Lines: lines(0, texts...), MaxStream: 3000})
	}
	require.ErrorIs(t, limited(long, long, long), livelog.ErrTooLong)
	_, err := s.State(t.Context(), id)
	require.ErrorIs(t, err, livelog.ErrUnknown, "a refused batch leaves nothing")
	require.NoError(t, limited(long))
	require.ErrorIs(t, limited("short", long, long), livelog.ErrTooLong)
	assert.Equal(t, []string{long}, all(t, s, id, 0))
	require.NoError(t, limited("short"))
}

func runs(t *testing.T, s livelog.Streams) {
	put(t, s, id, "w1", 0, "first run")
	first := state(t, s, id)
	require.NoError(t, s.Finish(t.Context(), id, false))
	require.NoError(t, s.SetArchived(t.Context(), id, first.Run, 1))
	require.NoError(t, s.Start(t.Context(), id, "w2"))
	second := state(t, s, id)
	assert.Greater(t, second.Run, first.Run)
	assert.True(t, second.Open)
	assert.Zero(t, second.Lines)
	assert.Zero(t, second.Archived)
	put(t, s, id, "w1", 0, "second run")
	assert.Equal(t, []string{"second run"}, all(t, s, id, 0), "writers are the run's")
	_, err := s.Read(t.Context(), id, first.Run, 0)
	require.ErrorIs(t, err, livelog.ErrUnknown)
	require.NoError(t, s.Remove(t.Context(), id, first.Run))
	require.NoError(t, s.SetArchived(t.Context(), id, first.Run, 5))
	assert.Zero(t, state(t, s, id).Archived, "the first run's affairs are its own")
}

func apart(t *testing.T, s livelog.Streams) {
	ids := []livelog.ID{
		{Account: "a", Key: "b/c"}, {Account: "a/b", Key: "c"}, {Account: "A", Key: "b/c"}, {Account: "a", Key: "B/C"},
		{Account: "a", Key: "../../x"}, {Account: "..", Key: "."}, {Account: "a", Key: "b"}, {Account: "a", Key: " \x00ä\xff"},
		{Account: "a", Key: strings.Repeat("long/", 1000)}, {Account: "1:a", Key: "b"}, {Account: "1", Key: "a:b"},
	}
	for i, id := range ids {
		put(t, s, id, "w", 0, fmt.Sprint(i))
	}
	for i, id := range ids {
		assert.Equal(t, []string{fmt.Sprint(i)}, all(t, s, id, 0), "%q", id)
	}
	seen := map[livelog.ID]bool{}
	for id, st := range s.All(t.Context(), "") {
		seen[id] = true
		assert.EqualValues(t, 1, st.Lines)
	}
	assert.Len(t, seen, len(ids))
	_, total := s.Usage("")
	assert.Equal(t, len(ids), total.Logs)
	for account, want := range map[string]int{"a": 6, "A": 1, "a/b": 1, "..": 1, "another": 0} {
		n := 0
		for id := range s.All(t.Context(), account) {
			assert.Equal(t, account, id.Account)
			n++
		}
		own, _ := s.Usage(account)
		assert.Equal(t, want, n, account)
		assert.Equal(t, want, own.Logs, account)
	}
}

// A stream remembers its writers, so their number is bounded.
func manyWriters(t *testing.T, s livelog.Streams) {
	name := func(i int) string { return fmt.Sprintf("w%d", i) }
	for i := range 1000 {
		put(t, s, id, name(i), 0, "x")
	}
	batch := livelog.Batch{Writer: name(1000), Lines: lines(0, "x"), MaxStream: plenty}
	require.ErrorIs(t, s.Append(t.Context(), id, batch), livelog.ErrTooLong)
	put(t, s, id, name(7), 1, "y")
	assert.EqualValues(t, 1001, state(t, s, id).Lines)
}

func archives(t *testing.T, s livelog.Streams) {
	require.NoError(t, s.SetArchived(t.Context(), id, 1, 1), "of a log that is not there")
	put(t, s, id, "", 0, "a", "b")
	run := state(t, s, id).Run
	require.NoError(t, s.SetArchived(t.Context(), id, run, 2))
	assert.EqualValues(t, 2, state(t, s, id).Archived)
	require.NoError(t, s.SetArchived(t.Context(), id, run, livelog.Uploaded))
	require.NoError(t, s.Finish(t.Context(), id, false))
	assert.EqualValues(t, livelog.Uploaded, state(t, s, id).Archived)
	require.NoError(t, s.Finish(t.Context(), id, true))
	assert.Zero(t, state(t, s, id).Archived, "a snapshot replaces it")

	empty := livelog.ID{Account: "acc", Key: "empty"}
	require.NoError(t, s.Start(t.Context(), empty, ""))
	require.NoError(t, s.SetArchived(t.Context(), empty, state(t, s, empty).Run, livelog.Uploaded))
	require.NoError(t, s.Finish(t.Context(), empty, true))
	assert.EqualValues(t, livelog.Uploaded, state(t, s, empty).Archived, "nothing replaces nothing")
}

func watching(t *testing.T, s livelog.Streams) {
	heard := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	appeared := s.Watch(id)
	assert.False(t, heard(appeared))
	require.NoError(t, s.Start(t.Context(), id, ""))
	<-appeared
	for _, change := range []func(){
		func() { put(t, s, id, "", 0, "a") },
		func() { require.NoError(t, s.Finish(t.Context(), id, false)) },
		func() { require.NoError(t, s.Start(t.Context(), id, "")) },
		func() { require.NoError(t, s.Remove(t.Context(), id, state(t, s, id).Run)) },
	} {
		c := s.Watch(id)
		assert.False(t, heard(c))
		change()
		<-c
	}
	put(t, s, livelog.ID{Account: "acc", Key: "other"}, "", 0, "x")
	live, none := s.Watch(livelog.ID{Account: "acc", Key: "other"}), s.Watch(id)
	require.NoError(t, s.Close())
	<-live
	<-none
}

func anyLine(t *testing.T, s livelog.Streams) {
	const n = 20_000
	var texts []string
	for i := range n {
		texts = append(texts, fmt.Sprintf("%d %s", i, strings.Repeat("x", i%200)))
	}
	for i := 0; i < n; {
		size := min(1+i%977, n-i)
		put(t, s, id, "w", int64(i), texts[i:i+size]...)
		i += size
	}
	for _, from := range []int64{0, 1, 976, 977, 978, n / 2, n - 1} {
		require.Equal(t, texts[from:], all(t, s, id, from), "from %d", from)
	}
	part, err := s.Read(t.Context(), id, state(t, s, id).Run, 0)
	require.NoError(t, err)
	size := 0
	for _, l := range part {
		size += len(l.Raw)
	}
	assert.Less(t, size, 1<<20, "a reader's memory is bounded")
}

func crowd(t *testing.T, s livelog.Streams) {
	const writers, readers, each = 8, 4, 300
	require.NoError(t, s.Start(t.Context(), id, ""))
	var work sync.WaitGroup
	for w := range writers {
		work.Go(func() {
			name := fmt.Sprint("w", w)
			for i := range int64(each) {
				// Send each batch twice, as after a lost answer.
				for range 2 {
					assert.NoError(t, s.Append(t.Context(), id, livelog.Batch{
						Writer: name, Lines: lines(i, fmt.Sprintf("%s %d", name, i)), MaxStream: plenty,
					}))
				}
			}
		})
	}
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			last := map[string]int{}
			for next := int64(0); next < writers*each; {
				changed := s.Watch(id)
				st, err := s.State(t.Context(), id)
				if !assert.NoError(t, err) {
					return
				}
				part, err := s.Read(t.Context(), id, st.Run, next)
				if !assert.NoError(t, err) {
					return
				}
				if len(part) == 0 {
					<-changed
				}
				for _, l := range part {
					assert.Equal(t, next, l.Pos)
					next++
					var w string
					var n int
					_, err := fmt.Sscanf(strings.Trim(string(l.Raw), `"`), "%s %d", &w, &n)
					assert.NoError(t, err)
					assert.Equal(t, last[w], n, "a writer's lines are in order, and each is there once")
					last[w] = n + 1
				}
			}
		})
	}
	work.Wait()
	reading.Wait()
	assert.EqualValues(t, writers*each, state(t, s, id).Lines)
}

func ending(t *testing.T, s livelog.Streams) {
	put(t, s, id, "", 0, "a")
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err := s.State(t.Context(), id)
	require.ErrorIs(t, err, livelog.ErrClosed)
	_, err = s.Read(t.Context(), id, 1, 0)
	require.ErrorIs(t, err, livelog.ErrClosed)
	require.ErrorIs(t, s.Start(t.Context(), id, ""), livelog.ErrClosed)
	require.ErrorIs(t, s.Append(t.Context(), id, livelog.Batch{Lines: lines(0, "x"), MaxStream: plenty}), livelog.ErrClosed)
	require.ErrorIs(t, s.Finish(t.Context(), id, false), livelog.ErrClosed)
	<-s.Watch(id)
}
