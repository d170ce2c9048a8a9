package queue

import (
	"math"
	"slices"
)

// bestDelegate returns the delegate for a work that waits and is not blocked, nil when
// none is free. It searches the candidates of the requirement's tag in their order. A
// delegate that missed an offer of the work comes after all others. It leaves out the
// delegate left, from which the work was just taken.
func (w *work) bestDelegate(left *delegate) (missed *delegate) {
	r := w.requirement
	w.account.updateCandidates(r.kind)
	for c := range r.tag.candidates[r.kind].all() {
		d := c.delegate
		if d == left || !d.fits(r) {
			continue
		}
		if w.Was[d.info.ID] == 0 {
			return d
		}
		if missed == nil {
			missed = d
		}
	}
	return missed
}

// nextWork returns the first waiting work that fits a delegate, nil when there is none.
// It searches the delegate's tags. At each it stops at the first
// requirement that fits, or that is after the best one found so far. Requirements that
// it finds blocked wait for their group from then on.
func (d *delegate) nextWork() *work {
	if !d.takesWork() {
		return nil
	}
	var best waiter
	var blocked []*requirement
	for _, t := range d.tags {
		for k := range t.waiters {
			if kind(k) == stages && d.free() <= 0 {
				continue
			}
			for next := range t.waiters[k].all() {
				if best.of != nil && !next.before(best) {
					break
				}
				if !d.fits(next.of) {
					continue
				}
				if next.of.fullGroup() == nil {
					best = next
					break
				}
				blocked = append(blocked, next.of)
			}
		}
	}
	for _, r := range blocked {
		r.move(r.fullGroup())
	}
	if best.of == nil {
		return nil
	}
	return best.of.first()
}

// fits reports whether a delegate with the requirement's tag may get its works. It does
// not check whether the delegate is free or takes new work.
func (d *delegate) fits(r *requirement) bool {
	return d.hasAll(r.selectors, r.tag.name) && d.variant(r) >= 0 && !slices.Contains(r.refused, d.info.ID)
}

// hasAll reports whether the delegate has the selectors among its tags. It skips the tag
// known, which the caller has found at the delegate. An empty name skips nothing.
func (d *delegate) hasAll(selectors []string, known string) bool {
	for _, s := range selectors {
		if (s != known || s == "") && !d.has[s] {
			return false
		}
	}
	return true
}

// variant returns the index of the first variant that the delegate supports, -1 when
// there is none.
func (d *delegate) variant(r *requirement) int {
	return slices.IndexFunc(r.types, d.supports)
}

// supports reports whether the delegate supports all task types.
func (d *delegate) supports(types []string) bool {
	return len(d.info.Types) == 0 || containsAll(d.info.Types, types)
}

// takesWork reports whether the delegate gets new work.
func (d *delegate) takesWork() bool { return !d.Lost && !d.info.Draining && !d.Drained }

// free returns how many more stages the delegate may have.
func (d *delegate) free() int {
	if d.Max == 0 {
		return math.MaxInt
	}
	return d.Max - len(d.slots)
}

// assign offers a waiting work to the best free delegate, if there is one. It leaves out
// the delegate left, from which the work was just taken.
func (q *Queue) assign(w *work, left *delegate, now instant) {
	r := w.requirement
	if g := r.fullGroup(); g != nil {
		if r.full == nil {
			r.move(g)
		}
	} else if d := w.bestDelegate(left); d != nil {
		q.offer(w, d, now)
	}
}

// dispatch gives away a slot of the delegate d and room in groups, which the work from has
// released. Each of the three may be nil. All works that fit get the slot or the room in
// their order. If the work from waits again, it is one of them, but tries other delegates
// before d.
func (q *Queue) dispatch(from *work, d *delegate, groups []*group, now instant) {
	if from != nil && from.queued && from.requirement.full == nil {
		turn := &group{}
		from.requirement.move(turn)
		groups = append(slices.Clip(groups), turn)
	}
	for {
		var next *work // the first work for the delegate
		if d != nil {
			next = d.nextWork()
		}
		r := firstUnblocked(groups)
		switch {
		case r != nil && (next == nil || r.turn <= next.turn()):
			q.admit(r, from, d, now)
		case next != nil:
			q.offer(next, d, now)
		default:
			return
		}
	}
}

// admit assigns the first work of a requirement whose group has room now. If another work
// of the requirement follows, it waits for the group again, so that its turn decides.
func (q *Queue) admit(r *requirement, from *work, left *delegate, now instant) {
	g, w := r.full, r.first()
	if w != from {
		left = nil
	}
	r.move(nil)
	if q.assign(w, left, now); r.list != nil && r.first() != w {
		r.move(g)
	}
}

// offer offers a work to a delegate, which has AcquireTimeout to acquire it.
func (q *Queue) offer(w *work, d *delegate, now instant) {
	w.dequeue()
	w.State, w.delegate, w.Variant = given, d, int32(d.variant(w.requirement)) //nolint:gosec // a caller has not so many
	if w.Stage {
		d.slots[w.ID] = w
		w.requirement.use(1)
	}
	w.first.body = w.Variants[w.Variant].Task
	q.give(w.first, d, now)
	q.arm(w, min(now.after(q.cfg.AcquireTimeout), w.queueDeadline()))
}

// withdraw takes back all offers that a delegate has not acquired.
func (q *Queue) withdraw(d *delegate, now instant) {
	for _, w := range d.offered() {
		q.requeue(w, now)
	}
}

// requeue takes a work from its delegate and puts it back to its old place in the queue.
// Then it gives away the slot and the room that the work has released.
func (q *Queue) requeue(w *work, now instant) {
	d := w.delegate
	delete(d.slots, w.ID)
	q.take(w.first)
	w.first.State, w.first.owner = idle, nil
	w.first.Offered, w.first.Acquired, w.first.end = 0, 0, nil
	q.emit(Requeued, now, w.first)
	w.requirement.use(-1)
	q.wait(w, now)
	q.dispatch(w, d, w.requirement.in, now)
}
