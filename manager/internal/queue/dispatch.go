package queue

import (
	"math"
	"slices"
)

// Who gets what (SPEC Q2, Q3). Two decisions keep the invariant that no work
// waits while a delegate that may have it is free: place gives a work that has
// come to the best free delegate, fill gives a delegate that has become free the
// first works that it is eligible for. Neither looks at all that waits or at all
// delegates:
//
//   - works that need the same are a class (class.go); of those with one
//     priority, in a lane, only the first counts (lane.go);
//   - delegates that no class can tell apart are a crew, of which only the first
//     counts (crew.go);
//   - a class queues at one of its selectors, the rarest, in a line (tag.go), and
//     crews serve the lines of their tags. A decision searches the lines of one
//     delegate's tags, or the one of a work's class, in their order, and stops at
//     the first that fits.
//
// So it costs the logarithm of what stands in these lines, and a step for each
// neighbour that comes before the one chosen and does not fit it: one that asks
// for another tag besides, or lacks one. At worst these are the classes, or
// crews, of one tag.

// eligible tells whether a delegate may get a work, free or not.
func (d *delegate) eligible(w *work) bool {
	return d.takes() && w.was[d.info.ID] != refused && d.hasTags(*w.Selectors) && d.variant(w) >= 0
}

// takes tells whether the delegate gets anything new at all.
func (d *delegate) takes() bool { return !d.lost && !d.info.Draining && !d.drained }

func (d *delegate) hasTags(selectors []string) bool {
	for _, s := range selectors {
		if !d.tags[fold(s)] {
			return false
		}
	}
	return true
}

// variant is the first of the work's variants that the delegate supports, -1
// when there is none.
func (d *delegate) variant(w *work) int { return variant(w.Variants, d.types) }

func variant(all []Variant, types map[string]bool) int {
	return slices.IndexFunc(all, func(v Variant) bool {
		for _, t := range v.Types {
			if types != nil && !types[t] {
				return false
			}
		}
		return true
	})
}

// free is how many more stages the delegate may have.
func (d *delegate) free() int {
	if d.max == 0 {
		return math.MaxInt
	}
	return d.max - len(d.slots)
}

func (d *delegate) hasRoom(w *work) bool { return !w.Stage || d.free() > 0 }

// place gives a work that waits to the best delegate that is free for it, if
// there is one, but not to the one that it has just left, nil for none. One that
// let it lie before is taken only when there is no other. The caller holds mu.
func (q *Queue) place(w *work, left *delegate, now instant) {
	var d *delegate
	if g := w.class.full(); g == nil {
		d = w.acc.best(w, left)
	} else if w.lane.parked == nil {
		w.lane.park(g)
	}
	if q.placing != nil {
		q.placing(w, left, d)
	}
	if d != nil {
		q.offer(w, d, d.variant(w), now)
	}
}

// best finds the delegate for a work that waits, nil when none is free.
func (a *account) best(w *work, left *delegate) *delegate {
	a.settle()
	var best *seat
	consider := func(s *seat) bool {
		if best != nil && !s.before(best) {
			return false
		}
		if d := s.d; d == left || w.was[d.info.ID] != 0 {
			return true
		}
		best = s
		return false
	}
	k := w.kind()
	w.class.line.crews.walk(func(s *stall) bool {
		if best != nil && !s.best.before(&best.rank) {
			return false
		}
		if s.crew.can(w.class) {
			s.crew.free[k].walk(consider)
		}
		return true
	})
	if best != nil {
		return best.d
	}
	for id, f := range w.was {
		d := a.delegates[id]
		if f != missed || d == nil || d == left || d.seats[k].index == 0 || !d.crew.can(w.class) {
			continue
		}
		if best == nil || d.seats[k].before(best) {
			best = &d.seats[k]
		}
	}
	if best != nil {
		return best.d
	}
	return nil
}

// fill gives a delegate all that waits and that it has room for, in the queue's
// order. The caller holds mu.
func (q *Queue) fill(d *delegate, now instant) {
	for d.takes() {
		w := d.next()
		if q.filling != nil {
			q.filling(d, w)
		}
		if w == nil {
			return
		}
		q.offer(w, d, d.variant(w), now)
	}
}

// next finds the first work that waits for a delegate such as this, nil when it
// has no room for any.
func (d *delegate) next() *work {
	var best *lane
	var few [8]*lane
	full := few[:0]
	consider := func(n *lane) bool {
		if best != nil && !n.before(best) {
			return false
		}
		if slices.Contains(n.refused, d.info.ID) || !d.crew.can(n.class) {
			return true
		}
		if n.class.full() != nil {
			full = append(full, n)
			return true
		}
		best = n
		return false
	}
	room := d.free() > 0
	for _, t := range d.crew.tags {
		if l := t.lines[stages]; l != nil && room {
			l.lanes.walk(consider)
		}
		if l := t.lines[singles]; l != nil {
			l.lanes.walk(consider)
		}
	}
	for _, n := range full {
		n.park(n.class.full()) // the next decisions need not meet it
	}
	if best == nil {
		return nil
	}
	return best.first
}

// offer gives a work to a delegate, which has until AcquireTimeout to take it.
// The caller holds mu.
func (q *Queue) offer(w *work, d *delegate, variant int, now instant) {
	q.unwait(w)
	w.state, w.d, w.variant = given, d, int32(variant) //nolint:gosec // a caller has not so many
	if w.Stage {
		d.slots[w.ID] = w
		w.class.count(1)
	}
	w.first.body = w.Variants[variant].Task
	q.give(w.first, d, now)
	q.arm(w, min(now.after(q.cfg.AcquireTimeout), w.until()))
}

// miss takes back an offer that was not acquired in time (SPEC Q4). The caller
// holds mu.
func (q *Queue) miss(w *work, now instant) {
	w.note(w.d, missed)
	q.requeue(w, now)
}

// note remembers what became of a work at a delegate.
func (w *work) note(d *delegate, f fate) {
	if w.was == nil {
		w.was = map[string]fate{}
	}
	w.was[d.info.ID] = f
}

// requeue takes a work from its delegate, back to its old place, and tries
// another one. The caller holds mu.
func (q *Queue) requeue(w *work, now instant) {
	d := w.d
	delete(d.slots, w.ID)
	q.take(w.first)
	w.first.state, w.first.owner = idle, nil
	w.first.offered, w.first.acquired, w.first.end = 0, 0, nil
	q.emit(Requeued, now, w.first)
	if w.Stage {
		w.class.count(-1)
	}
	q.wait(w, now)
	q.again(w, d, w.class.groups, now)
}

// again gives away a work that has begun to wait, and the slot and the room in
// groups that it has left: with the slot of d, nil for none. The slot goes to the
// first in line, which it may be itself. All have their turn in their order, parked
// at a group or not: what comes is the same whether a lane has been met or not, as
// after a Load. The caller holds mu.
func (q *Queue) again(w *work, d *delegate, left []*group, now instant) {
	if n := room(left); w.lane != nil {
		if n == nil {
			q.fillBefore(d, w, now)
			q.place(w, d, now)
		} else if w.lane.parked == nil {
			w.lane.park(n.parked) // it has its turn among them
		}
	}
	q.admit(left, d, w, now)
	if d != nil {
		q.fill(d, now)
	}
}

// withdraw takes back all that a delegate was offered. The caller holds mu.
func (q *Queue) withdraw(d *delegate, now instant) {
	for _, w := range d.offered() {
		q.requeue(w, now)
	}
}
