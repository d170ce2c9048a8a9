package queue

import (
	"math"
	"slices"
)

// decider makes the decisions of rules Q2 and Q3. The queue's own one is the index;
// the tests compare it with one that looks at everything.
type decider interface {
	// bestDelegate returns the delegate for a work that waits and is not blocked, nil
	// when none is free. It is not the delegate that the work has just left.
	bestDelegate(w *work, left *delegate) *delegate
	// nextWork returns the first work that waits for a delegate, nil when there is
	// none that it has room for.
	nextWork(d *delegate) *work
}

// index decides by the shards.
type index struct{}

// bestDelegate searches the candidates of the requirement's shard in their order. A
// delegate that missed an offer of the work comes after all that did not.
func (index) bestDelegate(w *work, left *delegate) *delegate {
	w.account.updateRanks()
	var missed *delegate
	for c := range w.requirement.shard.candidates.all() {
		d := c.delegate
		if d == left || !d.fits(w.requirement) {
			continue
		}
		if w.was[d.info.ID] == 0 {
			return d
		}
		if missed == nil {
			missed = d
		}
	}
	return missed
}

// nextWork searches the shards of the delegate's tags. In each it stops at the first
// requirement that fits, or that is after the best one found so far. Requirements
// that it finds blocked wait for their group from then on.
func (index) nextWork(d *delegate) *work {
	var best waiter
	var few [8]*requirement
	blocked := few[:0]
	for _, t := range d.holds {
		for k, s := range t.shards {
			if s == nil || kind(k) == stages && d.free() <= 0 {
				continue
			}
			for next := range s.waiters.all() {
				if best.requirement != nil && !next.before(best) {
					break
				}
				if !d.fits(next.requirement) {
					continue
				}
				if next.requirement.fullGroup() == nil {
					best = next
					break
				}
				blocked = append(blocked, next.requirement)
			}
		}
	}
	for _, r := range blocked {
		r.block(r.fullGroup())
	}
	if best.requirement == nil {
		return nil
	}
	return best.requirement.first()
}

// fits reports whether a delegate of the requirement's shard, free or not, may get its
// works while it takes any.
func (d *delegate) fits(r *requirement) bool {
	return d.hasTags(r) && d.supports(r) && !slices.Contains(r.refused, d.info.ID)
}

// hasTags reports whether a delegate of the requirement's shard has the other selectors
// among its tags.
func (d *delegate) hasTags(r *requirement) bool {
	for _, s := range r.others {
		if !d.tags[s] {
			return false
		}
	}
	return true
}

func (d *delegate) supports(r *requirement) bool { return firstVariant(r.variants, d.types) >= 0 }

// takesWork reports whether the delegate gets anything new at all.
func (d *delegate) takesWork() bool { return !d.lost && !d.info.Draining && !d.drained }

// variant returns the index of the work's first variant that the delegate supports,
// -1 when there is none.
func (d *delegate) variant(w *work) int { return firstVariant(w.Variants, d.types) }

func firstVariant(all []Variant, types map[string]bool) int {
	return slices.IndexFunc(all, func(v Variant) bool {
		for _, t := range v.Types {
			if types != nil && !types[t] {
				return false
			}
		}
		return true
	})
}

// free returns how many more stages the delegate may have.
func (d *delegate) free() int {
	if d.max == 0 {
		return math.MaxInt
	}
	return d.max - len(d.slots)
}

// assign offers a work that waits to the best free delegate, if there is one, but not
// to the one that it has just left. The caller holds mu.
func (q *Queue) assign(w *work, left *delegate, now instant) {
	r := w.requirement
	if g := r.fullGroup(); g != nil {
		if r.blocked == nil {
			r.block(g)
		}
		return
	}
	if d := q.decider.bestDelegate(w, left); d != nil {
		q.offer(w, d, now)
	}
}

// fill offers a delegate the first works that wait for it until it has no more room.
// The caller holds mu.
func (q *Queue) fill(d *delegate, now instant) {
	for w := q.next(d); w != nil; w = q.next(d) {
		q.offer(w, d, now)
	}
}

// next returns the first work that waits for a delegate, nil without a delegate or
// when it takes nothing.
func (q *Queue) next(d *delegate) *work {
	if d == nil || !d.takesWork() {
		return nil
	}
	return q.decider.nextWork(d)
}

// offer offers a work to a delegate, which has AcquireTimeout to acquire it. The
// caller holds mu.
func (q *Queue) offer(w *work, d *delegate, now instant) {
	w.stopWaiting()
	w.state, w.delegate, w.variant = given, d, int32(d.variant(w)) //nolint:gosec // a caller has not so many
	if w.Stage {
		d.slots[w.ID] = w
		w.requirement.use(1)
	}
	w.first.body = w.Variants[w.variant].Task
	q.give(w.first, d, now)
	q.arm(w, min(now.after(q.cfg.AcquireTimeout), w.queueDeadline()))
}

// withdraw takes back all that a delegate was offered and has not acquired. The
// caller holds mu.
func (q *Queue) withdraw(d *delegate, now instant) {
	for _, w := range d.offered() {
		q.requeue(w, now)
	}
}

// requeue takes a work from its delegate, back to its old place, and gives it and
// what it has left away. The caller holds mu.
func (q *Queue) requeue(w *work, now instant) {
	d := w.delegate
	delete(d.slots, w.ID)
	q.take(w.first)
	w.first.state, w.first.owner = idle, nil
	w.first.offered, w.first.acquired, w.first.end = 0, 0, nil
	q.emit(Requeued, now, w.first)
	if w.Stage {
		w.requirement.use(-1)
	}
	q.wait(w, now)
	q.dispatch(w, d, w.requirement.groups, now)
}

// dispatch finds a delegate for a work that has begun to wait. It also gives away
// what the work has left: a slot of the delegate d and room in groups; nil is none.
// All that can have the slot or the room get it in their order, the work itself among
// them: it does not matter which requirements a decision has found blocked before.
// The caller holds mu.
func (q *Queue) dispatch(w *work, d *delegate, groups []*group, now instant) {
	if w.queued {
		switch r := firstUnblocked(groups); {
		case r == nil:
			q.fillBefore(d, w, now)
			q.assign(w, d, now)
		case w.requirement.blocked == nil:
			w.requirement.block(r.blocked) // it has its turn among them
		}
	}
	q.admit(groups, d, w, now)
	q.fill(d, now)
}

// fillBefore offers a delegate the works that wait for it and come before one that
// has left it. That one may need the room in the groups; and what is due at the same
// time is done in the order of the offers. The caller holds mu.
func (q *Queue) fillBefore(d *delegate, w *work, now instant) {
	for next := q.next(d); next != nil && next.before(w); next = q.next(d) {
		q.offer(next, d, now)
	}
}

// admit gives away works that were blocked by groups which have room now. A slot of
// the delegate d may have become free together with the room: whichever work comes
// first is served first. The work from, which has left d, tries other delegates
// first. The caller holds mu.
func (q *Queue) admit(groups []*group, d *delegate, from *work, now instant) {
	r := firstUnblocked(groups)
	if r == nil {
		return
	}
	for next := q.next(d); r != nil; r = firstUnblocked(groups) { // next is the first for d
		if next != nil && next.turn() < r.entry.turn {
			q.offer(next, d, now)
			next = q.next(d)
			continue
		}
		g, w := r.blocked, r.first()
		r.block(nil)
		var left *delegate
		if w == from {
			left = d
		}
		if q.assign(w, left, now); r.entry.requirement != nil && r.first() != w {
			r.block(g) // its next work has its own turn
		}
		if w == from || next != nil && (w.delegate == d || next.requirement.fullGroup() != nil) {
			next = q.next(d)
		}
	}
}
