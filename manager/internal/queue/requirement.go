package queue

import (
	"slices"
	"strconv"
)

// kind tells works that hold a slot from those that do not.
type kind int

const (
	singles kind = iota
	stages
)

func kindOf(stage bool) kind {
	if stage {
		return stages
	}
	return singles
}

// requirement is what works ask for: a kind, selectors, task types, groups, and
// "none of the delegates that refused it". Delegates and limits treat all works of a
// requirement alike, so a decision looks at the first of them only.
type requirement struct {
	account   *account
	key       string
	kind      kind
	selectors []string  // folded, sorted, each one once
	spelled   []string  // the selectors as one of the works spells them
	variants  []Variant // their types alone
	groups    []*group  // all whose limits count; none for single tasks
	refused   []string  // sorted ids of delegates that must not get these works

	members int             // works that have not ended
	works   sorted[waiting] // works that wait
	entered int             // works that ever began to wait

	// While works wait, the requirement waits in one list: that of blocked, or that
	// of shard. entry is its element there.
	shard   *shard
	others  []string // the selectors besides that of the shard
	blocked *group   // the full group whose room it waits for; nil: it waits for a delegate
	entry   waiter

	counted counts // see account.count
}

// waiting is a work that waits.
type waiting struct {
	turn uint64
	work *work
}

func (w waiting) before(o waiting) bool { return w.turn < o.turn }

// waiter is a requirement of which works wait, at the turn of its first work.
type waiter struct {
	turn        uint64
	requirement *requirement
}

func (w waiter) before(o waiter) bool { return w.turn < o.turn }

// turn is the work's place among all works of its account: high priority first, then
// the oldest.
func (w *work) turn() uint64 {
	if w.Priority >= High {
		return w.seq
	}
	return w.seq | 1<<63
}

// appendKey appends what identifies the requirement of a work to b.
func (w *Work) appendKey(b []byte, refused []string) []byte {
	var few [8]string
	b = strconv.AppendBool(b, w.Stage)
	for _, s := range w.folded(few[:0]) {
		b = strconv.AppendQuote(b, s)
	}
	for _, v := range w.Variants {
		b = append(b, '|')
		for _, t := range v.Types {
			b = strconv.AppendQuote(b, t)
		}
	}
	for _, g := range w.groupNames(few[:0]) {
		b = append(b, '#')
		b = strconv.AppendQuote(b, g)
	}
	for _, id := range refused {
		b = append(b, '!')
		b = strconv.AppendQuote(b, id)
	}
	return b
}

// folded appends the selectors, in the form in which they are compared, to names.
func (w *Work) folded(names []string) []string {
	for _, s := range w.Selectors {
		names = append(names, fold(s))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// groupNames appends the names of the work's groups to names, in order. All stages
// belong to the group of their account, which has no name.
func (w *Work) groupNames(names []string) []string {
	if !w.Stage {
		return nil
	}
	names = append(append(names, ""), w.Groups...)
	slices.Sort(names)
	return slices.Compact(names)
}

// join makes w a work of the requirement that like has, under its key.
func (a *account) join(w *work, like *Work, key []byte) {
	r := a.requirements[string(key)]
	if r == nil {
		r = a.addRequirement(like, w.refusals(), string(key))
	}
	r.members++
	selectors := like.Selectors
	w.requirement = r
	w.Selectors = &r.spelled // one copy for all
	if !slices.Equal(r.spelled, selectors) {
		own := slices.Clone(selectors)
		w.Selectors = &own
	}
}

func (a *account) addRequirement(w *Work, refused []string, key string) *requirement {
	r := &requirement{
		account: a, key: key, kind: kindOf(w.Stage), selectors: w.folded(nil), spelled: slices.Clone(w.Selectors), refused: refused,
	}
	for _, v := range w.Variants {
		r.variants = append(r.variants, Variant{Types: slices.Clone(v.Types)})
	}
	for _, name := range w.groupNames(nil) {
		g := a.group(name)
		g.requirements++
		r.groups = append(r.groups, g)
	}
	a.requirements[key] = r
	return r
}

// quit removes one work from a requirement, and the requirement with its last work.
func (a *account) quit(r *requirement) {
	if r.members--; r.members > 0 {
		return
	}
	delete(a.requirements, r.key)
	for _, g := range r.groups {
		g.requirements--
		a.dropUnused(g)
	}
}

// rejoin moves a work to the requirement for other variants, or for changed refusals.
func (w *work) rejoin(variants []Variant) {
	old := w.requirement
	like := Work{Stage: w.Stage, Selectors: *w.Selectors, Groups: old.groupNames(), Variants: variants}
	w.account.join(w, &like, like.appendKey(nil, w.refusals()))
	w.account.quit(old)
}

// refusals are the sorted ids of the delegates that refused the work.
func (w *work) refusals() (ids []string) {
	for id, f := range w.was {
		if f == refused {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// enqueue lets a work wait.
func (r *requirement) enqueue(w *work) {
	w.queued = true
	if r.entry.requirement == nil || r.entered%1024 == 0 {
		r.chooseShard()
	}
	r.entered++
	r.works.insert(waiting{w.turn(), w})
	r.update()
}

// dequeue ends the wait of a work.
func (r *requirement) dequeue(w *work) {
	w.queued = false
	r.works.remove(waiting{w.turn(), w})
	r.update()
}

// first is the requirement's first work that waits.
func (r *requirement) first() *work { return r.works.chunks[0].elements[0].work }

// list is where the requirement waits.
func (r *requirement) list() *sorted[waiter] {
	if r.blocked != nil {
		return &r.blocked.waiters
	}
	return &r.shard.waiters
}

// update moves the requirement to the turn of its first work.
func (r *requirement) update() {
	first, ok := r.works.first()
	if r.entry.requirement != nil {
		if ok && r.entry.turn == first.turn {
			return
		}
		r.list().remove(r.entry)
	}
	if ok {
		r.entry = waiter{first.turn, r}
		r.list().insert(r.entry)
		return
	}
	r.entry, r.blocked = waiter{}, nil
	r.leaveShard()
}

// block lets the requirement wait for room in a group, or for a delegate when g is
// nil.
func (r *requirement) block(g *group) {
	r.list().remove(r.entry)
	r.blocked = g
	r.list().insert(r.entry)
}
