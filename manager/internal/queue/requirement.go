package queue

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
)

// kind distinguishes works that hold a slot from works that do not.
type kind int

const (
	singles kind = iota
	stages
)

// need has the requirements of a work.
type need struct {
	kind      kind
	selectors []string   // folded, sorted, each one once
	types     [][]string // the task types of each variant
	groups    []string   // names, sorted, each one once; every stage is in the group ""
	refused   []string   // sorted ids of delegates that must not get the work
}

func needOf(w *Work) *need {
	n := &need{types: typesOf(w.Variants)}
	for _, s := range w.Selectors {
		n.selectors = append(n.selectors, fold(s))
	}
	slices.Sort(n.selectors)
	n.selectors = slices.Compact(n.selectors)
	if w.Stage {
		n.kind = stages
		n.groups = append([]string{""}, w.Groups...)
		slices.Sort(n.groups)
		n.groups = slices.Compact(n.groups)
	}
	return n
}

func typesOf(variants []Variant) [][]string {
	all := make([][]string, 0, len(variants))
	for _, v := range variants {
		all = append(all, v.Types)
	}
	return all
}

// key returns a text that is equal for equal needs only.
func (n *need) key() string {
	b := strconv.AppendInt(nil, int64(n.kind), 10)
	for _, list := range append([][]string{n.selectors, n.groups, n.refused}, n.types...) {
		b = append(b, '|')
		for _, s := range list {
			b = strconv.AppendQuote(slices.Grow(b, len(s)+2), s) // AppendQuote alone copies all of b each time
		}
	}
	return string(b)
}

// requirement is a need with all works that have it. Delegates and limits treat these
// works alike, so a decision looks at the first of them only.
//
// While works wait, the requirement waits too, in one list: at a full group or at a tag.
type requirement struct {
	need
	key     string
	account *account
	in      []*group        // the gate of the account, and its groups
	members int             // works that have not ended
	works   sorted[waiting] // works that wait

	list *sorted[waiter] // nil while no work waits
	turn uint64          // of its first work; its place in the list
	full *group          // the group in which it waits for room
	tag  *tag            // the tag at which it waits for a delegate, nil if it waits for a group

	counted counts // see requirement.count
}

// entry is a work or a requirement in a list in the order of turns.
type entry[T any] struct {
	turn uint64
	of   T
}

func (e entry[T]) before(o entry[T]) bool { return e.turn < o.turn }

type (
	waiting = entry[*work]
	waiter  = entry[*requirement]
)

// join adds a work to the requirement with a need.
func (a *account) join(w *work, n *need, key string) {
	r := a.requirements[key]
	if r == nil {
		r = &requirement{need: *n, key: key, account: a, in: []*group{&a.gate}}
		for _, name := range n.groups {
			g := a.group(name)
			g.requirements++
			r.in = append(r.in, g)
		}
		a.requirements[key] = r
	}
	r.members++
	w.requirement = r
}

// quit takes a work from a requirement, which ends with its last work.
func (r *requirement) quit() {
	if r.members--; r.members > 0 {
		return
	}
	delete(r.account.requirements, r.key)
	for _, g := range r.in[1:] {
		g.requirements--
		r.account.dropUnused(g)
	}
}

// rejoin moves a work to the requirement for other types, or for changed refusals.
func (w *work) rejoin(variants []Variant) {
	old := w.requirement
	n := old.need
	n.types, n.refused = typesOf(variants), w.refusals()
	w.account.join(w, &n, n.key())
	old.quit()
}

// enqueue lets a work wait.
func (w *work) enqueue() {
	w.queued = true
	w.requirement.works.insert(waiting{w.turn(), w})
	w.requirement.update()
}

// dequeue ends the wait of a work, if it waits.
func (w *work) dequeue() {
	if w.queued {
		w.queued = false
		w.requirement.works.remove(waiting{w.turn(), w})
		w.requirement.update()
	}
}

// turn is the work's place among all works of its account: high priority first, then
// the oldest.
func (w *work) turn() uint64 {
	if w.Priority >= High {
		return w.Seq
	}
	return w.Seq | 1<<63
}

// first is the requirement's first work that waits.
func (r *requirement) first() *work { return r.works.chunks[0][0].of }

// update moves the requirement to the turn of its first work.
func (r *requirement) update() {
	if first, ok := r.works.first(); r.list == nil || !ok || first.turn != r.turn {
		r.move(r.full)
	}
}

// move lets the requirement wait for room in the group g. If g is nil, it waits for a
// delegate, at the selector that the fewest delegates have: a decision must pass its
// neighbours in that list.
func (r *requirement) move(g *group) {
	if r.list != nil {
		r.list.remove(waiter{r.turn, r})
		r.list, r.full = nil, nil
	}
	if r.tag != nil {
		r.account.dropTag(r.tag)
		r.tag = nil
	}
	first, ok := r.works.first()
	switch {
	case !ok:
		return
	case g != nil:
		r.full, r.list = g, &g.waiters
	default:
		r.tag = r.account.tag(r.account.rarest(r.selectors))
		r.list = &r.tag.waiters[r.kind]
	}
	r.turn = first.turn
	r.list.insert(waiter{r.turn, r})
}

// tag is a name that delegates have and selectors require. All delegates have the tag with
// the empty name.
type tag struct {
	name       string
	holders    map[*delegate]struct{}
	waiters    [2]sorted[waiter]    // by kind, the requirements that wait here
	candidates [2]sorted[candidate] // by kind, the holders that can take a work
}

// tag finds or makes a tag.
func (a *account) tag(name string) *tag {
	t := a.tags[name]
	if t == nil {
		t = &tag{name: name, holders: map[*delegate]struct{}{}}
		a.tags[name] = t
	}
	return t
}

// dropTag forgets a tag that no delegate has and at which no requirement waits.
func (a *account) dropTag(t *tag) {
	if len(t.holders)+t.waiters[singles].size+t.waiters[stages].size == 0 {
		delete(a.tags, t.name)
	}
}

// holders returns the delegates that have a tag.
func (a *account) holders(name string) map[*delegate]struct{} {
	if t := a.tags[name]; t != nil {
		return t.holders
	}
	return nil
}

// rarest returns the selector that the fewest delegates have, empty without selectors.
func (a *account) rarest(selectors []string) (name string) {
	fewest := math.MaxInt
	for _, s := range selectors {
		if n := len(a.holders(s)); n < fewest {
			name, fewest = s, n
		}
	}
	return name
}

// candidate is a delegate that can take a work, in the order in which delegates get works
// (rule Q2). It is a copy of the delegate's state at account.updateCandidates.
type candidate struct {
	free, slots, open int
	idle              instant
	order             uint64
	delegate          *delegate // nil: it can take none
}

func (c candidate) before(o candidate) bool {
	return cmp.Or(cmp.Compare(o.free, c.free), cmp.Compare(c.slots, o.slots), cmp.Compare(c.open, o.open),
		cmp.Compare(c.idle, o.idle), cmp.Compare(c.order, o.order)) < 0
}

// candidate returns the delegate's present state.
func (d *delegate) candidate(k kind) candidate {
	if !d.takesWork() || k == stages && d.free() <= 0 {
		return candidate{}
	}
	c := candidate{open: len(d.open), idle: d.Idle, order: d.Order, delegate: d}
	if k == stages {
		c.free, c.slots = d.free(), len(d.slots)
	}
	return c
}

// touch notes that the delegate's state as a candidate may have changed.
func (d *delegate) touch() {
	for k := range d.touched {
		if !d.touched[k] {
			d.touched[k] = true
			d.account.touched[k] = append(d.account.touched[k], d)
		}
	}
}

// updateCandidates moves the touched delegates to their places. If a slot becomes free and
// is given away before the next call, the delegate does not move.
func (a *account) updateCandidates(k kind) {
	for _, d := range a.touched[k] {
		d.touched[k] = false
		d.setCandidate(k, d.candidate(k))
	}
	clear(a.touched[k])
	a.touched[k] = a.touched[k][:0]
}

// setCandidate replaces the delegate in the lists of its tags.
func (d *delegate) setCandidate(k kind, c candidate) {
	old := d.candidates[k]
	if old == c {
		return
	}
	for _, t := range d.tags {
		if old.delegate != nil {
			t.candidates[k].remove(old)
		}
		if c.delegate != nil {
			t.candidates[k].insert(c)
		}
	}
	d.candidates[k] = c
}

// setTags replaces the delegate's tags by names and the tag that all delegates have. If
// names is nil, the delegate has no tag.
func (d *delegate) setTags(names map[string]bool) {
	for k := range d.candidates {
		d.setCandidate(kind(k), candidate{})
	}
	for _, t := range d.tags {
		delete(t.holders, d)
		d.account.dropTag(t)
	}
	d.has, d.tags = names, nil
	d.account.version++
	if names == nil {
		return
	}
	for _, name := range append(slices.Sorted(maps.Keys(names)), "") {
		t := d.account.tag(name)
		t.holders[d] = struct{}{}
		d.tags = append(d.tags, t)
	}
	d.touch()
}
