package queue

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Who gets what (SPEC Q2, Q3). Two decisions keep the invariant that no work
// waits while a delegate that may have it is free: place gives a work that has
// come to the best free delegate, fill gives a delegate that has become free the
// first works that it is eligible for. Both look at classes and delegates only,
// never at all that waits.

// eligible tells whether a delegate may get a work, free or not, and which of
// the work's variants it would do.
func (d *delegate) eligible(w *work) (variant int, ok bool) {
	if d.lost || d.info.Draining || w.refused[d.info.ID] || !d.hasTags(w.Selectors) {
		return 0, false
	}
	variant = d.variant(w)
	return variant, variant >= 0
}

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
func (d *delegate) variant(w *work) int {
	return slices.IndexFunc(w.Variants, func(v Variant) bool {
		for _, t := range v.Types {
			if d.types != nil && !d.types[t] {
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

// compare orders delegates by how much they are to be preferred for a work: the
// most free slots, the fewest stages and tasks, the longest idle.
func (d *delegate) compare(o *delegate, w *work) int {
	var bySlots int
	if w.Stage {
		bySlots = cmp.Or(cmp.Compare(o.free(), d.free()), cmp.Compare(len(d.slots), len(o.slots)))
	}
	return cmp.Or(bySlots, cmp.Compare(len(d.open), len(o.open)),
		d.idleSince.Compare(o.idleSince), cmp.Compare(d.order, o.order))
}

// place gives a work that waits to the best delegate that is free for it, if
// there is one, but not to the one that it has just left, nil for none. One that
// let it lie before is taken only when there is no other. The caller holds mu.
func (q *Queue) place(w *work, left *delegate, now time.Time) {
	var best *delegate
	var variant int
	for _, d := range w.acc.delegates {
		v, ok := d.eligible(w)
		if !ok || !d.hasRoom(w) || d == left {
			continue
		}
		if best != nil {
			missed, bestMissed := w.missed[d.info.ID], w.missed[best.info.ID]
			if missed && !bestMissed || missed == bestMissed && d.compare(best, w) > 0 {
				continue
			}
		}
		best, variant = d, v
	}
	if best != nil {
		q.offer(w, best, variant, now)
	}
}

// fill gives a delegate all that waits and that it has room for, in the queue's
// order. The caller holds mu.
func (q *Queue) fill(d *delegate, now time.Time) {
	if d.lost || d.info.Draining {
		return
	}
	for {
		var best *work
		var variant int
		for _, c := range d.acc.classes {
			w := c.works[0]
			if !d.hasRoom(w) || best != nil && w.compare(best) > 0 {
				continue
			}
			if v, ok := d.eligible(w); ok {
				best, variant = w, v
			}
		}
		if best == nil {
			return
		}
		q.offer(best, d, variant, now)
	}
}

// offer gives a work to a delegate, which has until AcquireTimeout to take it.
// The caller holds mu.
func (q *Queue) offer(w *work, d *delegate, variant int, now time.Time) {
	q.unwait(w)
	w.state, w.d, w.variant = given, d, variant
	if w.Stage {
		d.slots[w.ID] = w
	}
	w.first.body = w.Variants[variant].Task
	q.give(w.first, d, now)
	at := now.Add(q.cfg.AcquireTimeout)
	if !w.until.IsZero() && w.until.Before(at) {
		q.arm(&w.pickup, w.until, func(now time.Time) { q.late(w, now) })
		return
	}
	q.arm(&w.pickup, at, func(now time.Time) { q.miss(w, now) })
}

// miss takes back an offer that was not acquired in time (SPEC Q4). The caller
// holds mu.
func (q *Queue) miss(w *work, now time.Time) {
	w.missed[w.d.info.ID] = true
	q.requeue(w, now)
}

// requeue takes a work from its delegate, back to its old place, and tries
// another one. The slot that it leaves goes to the first in line, which it may
// be itself. The caller holds mu.
func (q *Queue) requeue(w *work, now time.Time) {
	d := w.d
	delete(d.slots, w.ID)
	q.take(w.first)
	w.first.state, w.first.owner = idle, ""
	w.first.offered, w.first.acquired, w.first.result = time.Time{}, time.Time{}, Result{}
	q.emit(Requeued, now, w.first)
	q.wait(w)
	q.place(w, d, now)
	q.fill(d, now)
}

// withdraw takes back all that a delegate was offered. The caller holds mu.
func (q *Queue) withdraw(d *delegate, now time.Time) {
	for _, w := range d.offered() {
		q.requeue(w, now)
	}
}
