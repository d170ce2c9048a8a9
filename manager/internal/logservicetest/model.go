package logservicetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// modelled is a stream in the model.
type modelled struct {
	open     bool
	texts    []string
	writers  map[string]int64
	archived int64
}

// machine runs an implementation and the model in parallel.
type machine struct {
	t       *testing.T
	opener  Opener
	streams livelog.Streams
	model   map[livelog.ID]*modelled
	n       int
}

func histories(t *testing.T, fresh func(*testing.T) Opener, volatile bool) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{t: t, opener: fresh(t), model: map[livelog.ID]*modelled{}}
		var err error
		if m.streams, err = m.opener(); err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = m.streams.Close() }()
		actions := map[string]func(*rapid.T){
			"start": m.start, "append": m.append, "finish": m.finish, "archive": m.archive, "remove": m.remove, "": m.check,
		}
		if !volatile {
			actions["reopen"] = m.reopen
		}
		rt.Repeat(actions)
	})
}

var (
	ids     = rapid.SampledFrom([]livelog.ID{{Account: "a", Key: "1"}, {Account: "a", Key: "2"}, {Account: "b", Key: "1"}})
	writers = rapid.SampledFrom([]string{"", "w1", "w2"})
)

func (m *machine) start(t *rapid.T) {
	id, w := ids.Draw(t, "id"), writers.Draw(t, "writer")
	m.must(t, m.streams.Start(m.t.Context(), id, w))
	s := m.model[id]
	if s != nil {
		if _, known := s.writers[w]; s.open || known {
			return
		}
	}
	s = &modelled{open: true, writers: map[string]int64{}}
	if w != "" {
		s.writers[w] = 0
	}
	m.model[id] = s
}

func (m *machine) append(t *rapid.T) {
	id, w := ids.Draw(t, "id"), writers.Draw(t, "writer")
	first, n := rapid.Int64Range(0, 6).Draw(t, "first"), rapid.IntRange(0, 4).Draw(t, "n")
	b := livelog.Batch{Writer: w, Next: rapid.Int64Range(0, 6).Draw(t, "next"), MaxStream: plenty}
	var texts []string
	for range n {
		m.n++
		texts = append(texts, fmt.Sprint(m.n))
	}
	b.Lines = lines(first, texts...)
	err := m.streams.Append(m.t.Context(), id, b)
	s := m.model[id]
	if s == nil {
		s = &modelled{writers: map[string]int64{}}
	}
	next := s.writers[w]
	if w != "" && b.Next > next {
		var behind *livelog.BehindError
		if !errors.As(err, &behind) || behind.Next != next {
			t.Fatalf("appended with next %d where it is %d: %v", b.Next, next, err)
		}
		return
	}
	m.must(t, err)
	if w != "" {
		texts = texts[min(max(next-first, 0), int64(n)):]
	}
	if len(texts) == 0 {
		if n == 0 && m.model[id] == nil {
			m.model[id] = s
			s.open = true
		}
		return
	}
	m.model[id] = s
	s.open = true
	s.texts = append(s.texts, texts...)
	if w != "" {
		s.writers[w] = first + int64(n)
	}
}

func (m *machine) finish(t *rapid.T) {
	id, snapshot := ids.Draw(t, "id"), rapid.Bool().Draw(t, "snapshot")
	err := m.streams.Finish(m.t.Context(), id, snapshot)
	s := m.model[id]
	if s == nil {
		if !errors.Is(err, livelog.ErrUnknown) {
			t.Fatalf("finished a log that does not exist: %v", err)
		}
		return
	}
	m.must(t, err)
	s.open = false
	if snapshot && s.archived == livelog.Uploaded && len(s.texts) > 0 {
		s.archived = 0
	}
}

func (m *machine) archive(t *rapid.T) {
	id := ids.Draw(t, "id")
	if s := m.model[id]; s != nil {
		s.archived = rapid.SampledFrom([]int64{0, 1, livelog.Uploaded}).Draw(t, "lines")
		m.must(t, m.streams.SetArchived(m.t.Context(), id, m.state(t, id).Run, s.archived))
	}
}

func (m *machine) remove(t *rapid.T) {
	id := ids.Draw(t, "id")
	if m.model[id] != nil {
		m.must(t, m.streams.Remove(m.t.Context(), id, m.state(t, id).Run))
		delete(m.model, id)
	}
}

func (m *machine) reopen(t *rapid.T) {
	m.must(t, m.streams.Close())
	var err error
	m.streams, err = m.opener()
	m.must(t, err)
}

// check compares all visible state.
func (m *machine) check(t *rapid.T) {
	seen := maps.Collect(m.streams.All(m.t.Context(), ""))
	if len(seen) != len(m.model) {
		t.Fatalf("%d streams instead of %d", len(seen), len(m.model))
	}
	var want livelog.Usage
	owned := map[string]livelog.Usage{}
	for id, s := range m.model {
		st := m.state(t, id)
		if st.Open != s.open || st.Lines != int64(len(s.texts)) || st.Archived != s.archived {
			t.Fatalf("%v is %+v instead of %+v", id, st, s)
		}
		want = livelog.Usage{Logs: want.Logs + 1, Size: want.Size + st.Size}
		owned[id.Account] = livelog.Usage{Logs: owned[id.Account].Logs + 1, Size: owned[id.Account].Size + st.Size}
		got, err := m.streams.Read(m.t.Context(), id, st.Run, 0)
		m.must(t, err)
		var texts []string
		for _, l := range got {
			texts = append(texts, string(l.Raw[1:len(l.Raw)-1]))
		}
		if !slices.Equal(texts, s.texts) {
			t.Fatalf("%v has %q instead of %q", id, texts, s.texts)
		}
	}
	for account, own := range owned {
		if got, all := m.streams.Usage(account); got != own || all != want {
			t.Fatalf("the usage of %q is %+v of %+v instead of %+v of %+v", account, got, all, own, want)
		}
	}
	if _, all := m.streams.Usage(""); all != want {
		t.Fatalf("the usage is %+v instead of %+v", all, want)
	}
}

func (m *machine) state(t *rapid.T, id livelog.ID) livelog.State {
	st, err := m.streams.State(m.t.Context(), id)
	m.must(t, err)
	return st
}

func (m *machine) must(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}
