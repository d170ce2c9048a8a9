package store_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// pastRow is a run or a stage as the model has it.
type pastRow struct {
	id                       string
	at                       time.Time // by which lists are sorted
	ended                    time.Time
	pipeline, status, branch string
	marks                    []store.Mark
	words                    []string
	size                     int
	nodes                    map[string]int // their sizes, which are in size too
	changed                  int            // the step of the last change
}

// past is a history next to a slow, obvious model of it.
type past struct {
	t            *rapid.T
	s            *store.Store
	runs, stages []*pastRow
	counted      map[string]map[string]int // ended runs and stages, also removed ones, by kind and status
	epochs       int
	position     uint64
	n, step      int
}

// Writes, removals and searches of a history have the same results as on a list in memory.
func TestTheHistoryActsAsTheModel(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		s := open(t, database)
		rapid.Check(t, func(rt *rapid.T) {
			require.NoError(rt, s.Clear(t.Context()))
			first := rapid.IntRange(1, 8).Draw(rt, "first")
			keys := first + rapid.IntRange(0, 20).Draw(rt, "keys")
			s.BoundPages(first, keys, rapid.IntRange(first, keys).Draw(rt, "rows"))
			p := &past{t: rt, s: s, counted: map[string]map[string]int{store.RunOutcomes: {}, store.StageOutcomes: {}}}
			for range rapid.IntRange(5, 40).Draw(rt, "steps") {
				p.change()
				p.search()
				p.check()
			}
		})
	})
}

func pickOf[T any](t *rapid.T, name string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, name)
}

// change writes or removes something.
func (p *past) change() {
	p.step++
	switch n := rapid.IntRange(0, 9).Draw(p.t, "change"); {
	case n < 3:
		p.start()
	case n < 5:
		p.save()
	case n < 8:
		p.record()
	case n < 9:
		p.expire(p.time())
	default:
		total := 0
		for _, r := range p.past() {
			total += r.size
		}
		p.expireExcess(rapid.IntRange(0, total+1).Draw(p.t, "bytes"))
	}
}

// time returns one of few times, in several minutes of several hours.
func (p *past) time() time.Time {
	return start.Add(rapid.SampledFrom([]time.Duration{0, time.Hour, 5 * time.Hour}).Draw(p.t, "hour")).
		Add(rapid.SampledFrom([]time.Duration{0, time.Minute, 10 * time.Minute}).Draw(p.t, "minute")).
		Add(time.Duration(rapid.IntRange(0, 3).Draw(p.t, "ms")) * time.Millisecond)
}

func (p *past) row() *pastRow {
	p.n++
	r := &pastRow{
		id: fmt.Sprint("x", p.n), pipeline: pickOf(p.t, "pipeline", "p1", "p2"), status: pickOf(p.t, "status", "GOOD", "BAD"),
		branch: pickOf(p.t, "branch", "", "main", "other"), changed: p.step,
	}
	for i := range rapid.IntRange(0, 2).Draw(p.t, "words") {
		if w := fmt.Sprint("w", rapid.IntRange(0, 30).Draw(p.t, "word")); i == 0 || r.words[0] != w {
			r.words = append(r.words, w)
		}
	}
	if rapid.Bool().Draw(p.t, "labelled") {
		r.marks = append(r.marks, store.Mark{Kind: "label", Name: "team", Value: pickOf(p.t, "team", "red", "blue")})
	}
	return r
}

func (r *pastRow) labels() map[string]string {
	labels := map[string]string{}
	for _, m := range r.marks {
		if m.Kind == "label" {
			labels[m.Name] = m.Value
		}
	}
	return labels
}

var errUndone = errors.New("the transaction is undone")

// update changes the database, or does all work for it and then nothing, and reports which.
func (p *past) update(fn func(tx *store.Tx) error) (done bool) {
	done = rapid.IntRange(0, 4).Draw(p.t, "undone") > 0
	err := p.s.Update(p.t.Context(), func(tx *store.Tx) error {
		if err := fn(tx); err != nil || done {
			return err
		}
		return errUndone
	})
	if done {
		require.NoError(p.t, err)
	} else {
		require.ErrorIs(p.t, err, errUndone)
	}
	return done
}

func (p *past) count(kind string, r *pastRow, change int) {
	if !r.ended.IsZero() {
		p.counted[kind][r.status] += change
	}
}

func (p *past) start() {
	r := p.row()
	r.at = p.time()
	if rapid.Bool().Draw(p.t, "ended") {
		r.ended = p.time()
	}
	run := newRun(r.id)
	run.Pipeline, run.Status, run.Branch, run.Created, run.Ended, run.Labels, run.Search = r.pipeline, r.status, r.branch, r.at, r.ended, r.labels(), strings.Join(r.words, "\n")
	run.Definition, r.nodes = nil, map[string]int{}
	var nodes []store.Node
	for _, path := range []string{"p", "q"}[:rapid.IntRange(0, 2).Draw(p.t, "nodes")] {
		nodes = append(nodes, p.node(r, path))
	}
	r.size = len(run.State) + p.packed() + r.nodes["p"] + r.nodes["q"]
	if p.update(func(tx *store.Tx) error { return tx.Create(run, nodes) }) {
		p.runs = append(p.runs, r)
		p.count(store.RunOutcomes, r, 1)
	}
}

// node returns a node with a state of some size, which it notes.
func (p *past) node(r *pastRow, path string) store.Node {
	r.nodes[path] = rapid.IntRange(1, 50).Draw(p.t, "size")
	return store.Node{Path: path, Data: json.RawMessage(strings.Repeat("1", r.nodes[path]))}
}

// save ends a run, or continues one that has ended, and may mark it with a delegate.
func (p *past) save() {
	if len(p.runs) == 0 {
		return
	}
	r := rapid.SampledFrom(p.runs).Draw(p.t, "run")
	now := *r
	now.status, now.ended, now.changed = pickOf(p.t, "status", "GOOD", "BAD"), time.Time{}, p.step
	if rapid.IntRange(0, 3).Draw(p.t, "ended") > 0 {
		now.ended = p.time()
	}
	now.nodes = maps.Clone(r.nodes)
	var nodes []store.Node
	for _, path := range []string{"p", "q"} {
		if rapid.Bool().Draw(p.t, "changed") {
			nodes = append(nodes, p.node(&now, path))
			now.size += now.nodes[path] - r.nodes[path]
		}
	}
	delegate := rapid.Bool().Draw(p.t, "delegate")
	if m := (store.Mark{Kind: "delegate", Value: "d"}); delegate && !slices.Contains(r.marks, m) {
		now.marks = append(slices.Clone(r.marks), m)
	}
	if p.update(func(tx *store.Tx) error {
		run, err := tx.Lock("a", r.id)
		if err != nil {
			return err
		}
		run.Status, run.Ended = now.status, now.ended
		if delegate {
			err = tx.Mark(run, "delegate", "", "d")
		}
		return errors.Join(err, tx.Save(run, nodes))
	}) {
		p.count(store.RunOutcomes, r, -1)
		*r = now
		p.count(store.RunOutcomes, r, 1)
	}
}

// record writes a section of ended stages. Some were written before, and some belong to a run.
func (p *past) record() {
	sec := store.Section{Account: "a", After: p.position}
	if sec.First = p.epochs == 0 || rapid.IntRange(0, 4).Draw(p.t, "epoch") == 0; sec.First {
		p.epochs++
		sec.After = 0
	}
	sec.Epoch = fmt.Sprint(p.epochs)
	add := func(r *pastRow, run string) {
		for _, st := range sec.Stages {
			if st.ID == r.id {
				return
			}
		}
		st := store.EndedStage{
			Account: "a", ID: r.id, Run: run, Pipeline: r.pipeline, Status: r.status, Branch: r.branch, Labels: r.labels(), Search: strings.Join(r.words, " "), Ended: r.ended, Head: []byte(r.id),
		}
		for _, m := range r.marks {
			if m.Kind == "delegate" {
				st.Delegate = m.Value
			}
		}
		sec.Stages = append(sec.Stages, st)
	}
	for range rapid.IntRange(1, 4).Draw(p.t, "stages") {
		kind := pickOf(p.t, "kind", "new", "new", "new", "old", "of a run")
		switch {
		case kind == "old" && len(p.stages) > 0:
			add(rapid.SampledFrom(p.stages).Draw(p.t, "old"), "")
		case kind == "of a run" && len(p.runs) > 0:
			r := rapid.SampledFrom(p.runs).Draw(p.t, "run")
			st, d := p.row(), store.Mark{Kind: "delegate", Value: pickOf(p.t, "delegate", "d", "e")}
			st.ended, st.marks = p.time(), append(st.marks, d)
			add(st, r.id)
			if !slices.Contains(r.marks, d) {
				r.marks, r.changed = append(slices.Clone(r.marks), d), p.step
			}
		default:
			r := p.row()
			r.ended = p.time()
			r.at = r.ended
			if rapid.Bool().Draw(p.t, "delegate") {
				r.marks = append(r.marks, store.Mark{Kind: "delegate", Value: pickOf(p.t, "delegate", "d", "e")})
			}
			add(r, pickOf(p.t, "gone", "", "gone"))
			p.stages = append(p.stages, r)
			p.count(store.StageOutcomes, r, 1)
		}
	}
	sec.To = sec.After + uint64(len(sec.Stages))
	require.NoError(p.t, p.s.Record(p.t.Context(), sec, start))
	require.ErrorIs(p.t, p.s.Record(p.t.Context(), sec, start), store.ErrStale)
	p.position = sec.To
	for _, r := range p.stages {
		if r.size == 0 { // the packed empty detail, the search and the head
			r.size = len(r.id) + len(strings.Join(r.words, " ")) + min(len(r.words), 1) + p.packed()
		}
	}
}

// packed returns the size of an empty definition or detail.
func (p *past) packed() int { return p.s.Packed(nil) }

// past returns the runs and stages that have ended.
func (p *past) past() (all []*pastRow) {
	for _, r := range slices.Concat(p.runs, p.stages) {
		if !r.ended.IsZero() {
			all = append(all, r)
		}
	}
	return all
}

func (p *past) expire(before time.Time) {
	limit := rapid.IntRange(1, 5).Draw(p.t, "limit")
	for n := limit; n >= limit; {
		var err error
		n, err = p.s.ExpireRuns(p.t.Context(), before, limit)
		require.NoError(p.t, err)
	}
	for n := limit; n >= limit; {
		var err error
		n, err = p.s.ExpireStages(p.t.Context(), before, limit)
		require.NoError(p.t, err)
	}
	require.NoError(p.t, p.s.ForgetOutcomes(p.t.Context(), start.Add(-time.Hour)))
	old := func(r *pastRow) bool { return !r.ended.IsZero() && r.ended.Before(before) }
	p.runs, p.stages = slices.DeleteFunc(p.runs, old), slices.DeleteFunc(p.stages, old)
}

// expireExcess removes the first minutes that are too many. The last minute always stays.
func (p *past) expireExcess(most int) {
	minutes := map[time.Time]int{}
	for _, r := range p.past() {
		minutes[r.ended.Truncate(time.Minute)] += r.size
	}
	stay, sum := time.Time{}, 0
	for _, m := range slices.SortedFunc(maps.Keys(minutes), func(a, b time.Time) int { return b.Compare(a) }) {
		if sum += minutes[m]; sum > most && !stay.IsZero() {
			break
		}
		stay = m
	}
	before, err := p.s.Excess(p.t.Context(), int64(most))
	require.NoError(p.t, err)
	for m := range minutes {
		require.Equal(p.t, m.Before(stay), m.Before(before), "of %v with the limit %d, rows before %s were removed and not before %s", minutes, most, before, stay)
	}
	p.expire(before)
}

// search reads a list with a filter, page by page. Sometimes rows come and go meanwhile.
func (p *past) search() {
	f, matches := p.filter()
	runs := rapid.Bool().Draw(p.t, "runs")
	rows := func() []*pastRow {
		if runs {
			return p.runs
		}
		return p.stages
	}
	f.Account, f.Limit = "a", rapid.IntRange(1, 4).Draw(p.t, "limit")
	changes := rapid.IntRange(0, 3).Draw(p.t, "changes") == 0
	before, began := map[string]bool{}, p.step
	for _, r := range rows() {
		before[r.id] = matches(r)
	}
	var found []string
	var last *store.Key
	for pages := 0; ; pages++ {
		require.Less(p.t, pages, 1000, "the list has no end")
		var keys []store.Key
		var next *store.Key
		var err error
		if runs {
			var page []store.Run
			page, next, err = p.s.Runs(p.t.Context(), f)
			for i := range page {
				keys = append(keys, store.Key{Time: page[i].Created, ID: page[i].ID})
			}
		} else {
			var page []store.EndedStage
			page, next, err = p.s.Ended(p.t.Context(), f)
			for i := range page {
				require.Equal(p.t, page[i].ID, string(page[i].Head))
				keys = append(keys, store.Key{Time: page[i].Ended, ID: page[i].ID})
			}
		}
		require.NoError(p.t, err)
		require.LessOrEqual(p.t, len(keys), f.Limit)
		for _, k := range keys {
			require.True(p.t, last == nil || cmp.Or(k.Time.Compare(last.Time), strings.Compare(k.ID, last.ID)) < 0, "%v follows %v", k, last)
			last = &k
			i := slices.IndexFunc(rows(), func(r *pastRow) bool { return r.id == k.ID })
			require.GreaterOrEqual(p.t, i, 0, "%s was removed", k.ID)
			require.True(p.t, matches(rows()[i]), "%s does not match %+v", k.ID, f)
			found = append(found, k.ID)
		}
		if next == nil {
			break
		}
		f.Before, f.BeforeID = next.Time, next.ID
		if changes {
			p.change()
		}
	}
	for _, r := range rows() {
		if before[r.id] && matches(r) && (r.changed <= began) {
			require.Contains(p.t, found, r.id, "%+v lacks %+v", f, *r)
		}
	}
}

// filter returns a filter and a function that applies it.
func (p *past) filter() (f store.Filter, matches func(*pastRow) bool) {
	for range rapid.IntRange(0, 3).Draw(p.t, "parts") {
		switch pickOf(p.t, "part", "pipeline", "status", "branch", "label", "delegate", "text", "after", "before") {
		case "pipeline":
			f.Pipeline = pickOf(p.t, "pipeline", "p1", "p2", "p3")
		case "status":
			f.Status = pickOf(p.t, "status", "GOOD", "BAD")
		case "branch":
			f.Branch = pickOf(p.t, "branch", "main", "other")
		case "label":
			f.Marks = append(f.Marks, store.Mark{Kind: "label", Name: "team", Value: pickOf(p.t, "team", "red", "blue", "green")})
		case "delegate":
			f.Marks = append(f.Marks, store.Mark{Kind: "delegate", Value: pickOf(p.t, "delegate", "d", "e")})
		case "text":
			f.Text += " " + pickOf(p.t, "text", "w", "w1", "w2", "w25", "W3")
		case "after":
			f.After = p.time()
		case "before":
			f.Before = p.time()
		}
	}
	final := f // the caller changes f for further pages
	return f, func(r *pastRow) bool {
		switch {
		case final.Pipeline != "" && r.pipeline != final.Pipeline, final.Status != "" && r.status != final.Status, final.Branch != "" && r.branch != final.Branch:
			return false
		case !final.After.IsZero() && r.at.Before(final.After), !final.Before.IsZero() && !r.at.Before(final.Before):
			return false
		}
		for _, m := range final.Marks {
			if !slices.Contains(r.marks, m) {
				return false
			}
		}
		for word := range strings.FieldsSeq(strings.ToLower(final.Text)) {
			if !slices.ContainsFunc(r.words, func(w string) bool { return strings.HasPrefix(w, word) }) {
				return false
			}
		}
		return true
	}
}

// check compares the sums and the outcomes.
func (p *past) check() {
	kept, computed, err := p.s.Sums(p.t.Context())
	require.NoError(p.t, err)
	require.Equal(p.t, computed, kept)
	want, total := 0, int64(0)
	for _, r := range p.past() {
		want += r.size
	}
	for _, size := range kept {
		total += size
	}
	require.EqualValues(p.t, want, total)
	for kind, counted := range p.counted {
		days, err := p.s.Days(p.t.Context(), "a", kind, "", start, start.Add(24*time.Hour))
		require.NoError(p.t, err)
		statuses := map[string]int{}
		for _, d := range days {
			for status, n := range d.Statuses {
				statuses[status] += n
			}
		}
		maps.DeleteFunc(statuses, func(_ string, n int) bool { return n == 0 })
		maps.DeleteFunc(counted, func(_ string, n int) bool { return n == 0 })
		require.Equal(p.t, counted, statuses, kind)
	}
}
