package queuetest

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// This file models which delegate gets which work (rules Q1 and Q3).

func (d *delegate) takes() bool { return !d.lost && !d.drainsItself && !d.drainedByManager }

func (d *delegate) slots() (n int) {
	for _, w := range d.acc.works {
		if w.stage != nil && w.d == d && (w.state == firstOffered || w.state == running) {
			n++
		}
	}
	return n
}

func (d *delegate) free() int {
	if d.maxStages == 0 {
		return math.MaxInt
	}
	return d.maxStages - d.slots()
}

func (d *delegate) eligible(w *work) bool {
	return d.tagged(w) && d.takes() && w.rejections[d.id] != refused && d.variantFor(w) >= 0
}

// tagged reports whether the delegate has all selectors of the work among its tags.
func (d *delegate) tagged(w *work) bool {
	tags := []string{strings.ToLower(d.name)}
	for _, t := range d.tags {
		tags = append(tags, strings.ToLower(strings.TrimSpace(t)))
	}
	for _, s := range w.selectors {
		if !slices.Contains(tags, strings.ToLower(s)) {
			return false
		}
	}
	return true
}

// variantFor returns the index of the first variant of the work that the delegate
// supports, or -1.
func (d *delegate) variantFor(w *work) int {
	return slices.IndexFunc(w.variants, func(types []string) bool {
		for _, t := range types {
			if len(d.types) > 0 && !slices.Contains(d.types, t) {
				return false
			}
		}
		return true
	})
}

func (d *delegate) freeFor(w *work) bool { return d.eligible(w) && (w.stage == nil || d.free() > 0) }

// groupUse returns how many stages of a group are assigned.
func (a *account) groupUse(group string) (n int) {
	for _, w := range a.works {
		if slices.Contains(w.groups, group) && (w.state == firstOffered || w.state == running) {
			n++
		}
	}
	return n
}

// isBlocked reports whether a limit or a pause keeps the work from all delegates.
func (w *work) isBlocked() bool {
	return w.acc.paused || slices.ContainsFunc(w.groups, func(g string) bool {
		most := w.acc.limits[g]
		return most > 0 && w.acc.groupUse(g) >= most
	})
}

// compareWaiting orders waiting work (rule Q2).
func compareWaiting(a, b *work) int {
	switch {
	case a.high != b.high && a.high:
		return -1
	case a.high != b.high:
		return 1
	}
	return cmp.Compare(a.seq, b.seq)
}

// waiting returns an account's waiting work in order.
func (a *account) waiting() (all []*work) {
	for _, w := range a.works {
		if w.state == waiting && w.first.state == idle {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, compareWaiting)
	return all
}

// bestDelegate returns the free delegate for the work: the one with the most free
// slots, then the fewest tasks, then the longest idle time. A delegate that ignored
// an offer of the work comes last (rule Q2).
func (m *model) bestDelegate(w *work, not *delegate) *delegate {
	if w.isBlocked() {
		return nil
	}
	rank := func(d *delegate) []int {
		r := []int{0, 0, len(d.open), int(d.idle), d.order}
		if w.stage != nil {
			r[0], r[1] = -d.free(), d.slots()
		}
		return r
	}
	for _, f := range []rejection{0, missed} {
		var best *delegate
		for _, d := range w.acc.delegates {
			if d == not || w.rejections[d.id] != f || !d.freeFor(w) {
				continue
			}
			if best == nil || slices.Compare(rank(d), rank(best)) < 0 {
				best = d
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}

// dispatch assigns all work that can be assigned, in the order of the queue.
func (m *model) dispatch(a *account) { m.dispatchFrom(a, nil, nil) }

// dispatchFrom dispatches after a delegate has lost a work item, which goes to
// another delegate if there is one.
func (m *model) dispatchFrom(a *account, w *work, left *delegate) {
	for again := true; again; {
		again = false
		for _, o := range a.waiting() {
			var d *delegate
			if o == w {
				d = m.bestDelegate(o, left)
			}
			if d == nil {
				d = m.bestDelegate(o, nil)
			}
			if d != nil {
				m.offer(o, d)
				again = true
				break
			}
		}
	}
}

func (m *model) offer(w *work, d *delegate) {
	w.state, w.d, w.variant = firstOffered, d, d.variantFor(w)
	w.first.kind = w.variants[w.variant][0]
	m.give(w.first, d)
	w.at = min(m.now+m.set.acquire, w.queueDeadline())
}

func (m *model) give(r *record, d *delegate) {
	r.state, r.d, r.seq = offered, d, m.number()
	d.open = append(d.open, r)
}

// takeBack removes a task from its delegate.
func (m *model) takeBack(r *record) {
	r.at = never
	if r.d != nil {
		r.d.open = slices.DeleteFunc(r.d.open, func(o *record) bool { return o == r })
	}
}

// queueDeadline returns when the work has waited too long.
func (w *work) queueDeadline() time.Duration {
	return max(w.first.submitted, w.notBefore) + w.queueTimeout
}

// enqueue puts the work in its place, once its back-off has passed.
func (m *model) enqueue(w *work) {
	w.d, w.state, w.at = nil, waiting, w.queueDeadline()
	if w.notBefore > m.now {
		w.state, w.at = delayed, w.notBefore
	}
}

// requeue withdraws an offer. The delegate of the offer comes last for this work,
// and its slot goes to the first work in the queue.
func (m *model) requeue(w *work) {
	left := w.d
	m.takeBack(w.first)
	w.first.state, w.first.d, w.first.wasAcquired = idle, nil, false
	m.emit(event{kind: requeued, w: w, r: w.first})
	m.enqueue(w)
	m.dispatchFrom(w.acc, w, left)
}

// withdrawOffers withdraws all offers to a delegate.
func (m *model) withdrawOffers(d *delegate) {
	for _, w := range d.offers() {
		m.requeue(w)
	}
}

// offers returns the work that is offered to a delegate and not acquired.
func (d *delegate) offers() (all []*work) {
	for _, r := range d.open {
		if r.state == offered && r == r.w.first {
			all = append(all, r.w)
		}
	}
	slices.SortFunc(all, compareWaiting)
	return all
}

// endTask sets the outcome of a task.
func (m *model) endTask(r *record, outcome string) {
	w := r.w
	m.takeBack(r)
	if d := r.d; d != nil && !d.removed && r.state == acquired && !r.answered {
		d.stops[r.id] = r
	}
	r.state, r.outcome = done, outcome
	if r == w.first && w.state != running {
		w.at = never
	}
	m.emit(event{kind: ended, w: w, r: r, outcome: outcome, acquired: r.wasAcquired})
	if w.stage == nil {
		m.release(w)
	}
}

// release ends the work and assigns its slot again.
func (m *model) release(w *work) {
	if w.d != nil {
		w.d.idle = m.now
	}
	w.state, w.leaseEnds, w.at = over, 0, m.now+m.set.retention
	m.ended = append(m.ended, w)
	m.dispatch(w.acc)
	kept := map[*work]bool{w: true}
	for n := len(m.ended) - 1; n > 0 && len(m.ended) > m.set.finished; n-- {
		first := m.nextForgotten(w, kept)
		if first == nil {
			return
		}
		if !m.forget(first) {
			m.ended = append(slices.DeleteFunc(m.ended, func(o *work) bool { return o == first }), first)
			kept[first] = true
		}
	}
}

// nextForgotten returns the oldest ended work of the account that has most of them, nil if the
// newest one is the next. An account whose works are all kept is left out.
func (m *model) nextForgotten(newest *work, kept map[*work]bool) *work {
	number, oldest := map[*account]int{}, map[*account]*work{}
	for _, w := range m.ended {
		number[w.acc]++
		if oldest[w.acc] == nil && (w == newest || !kept[w]) {
			oldest[w.acc] = w
		}
	}
	var most *account
	for a := range oldest {
		if most == nil || number[a] > number[most] || number[a] == number[most] && a.name < most.name {
			most = a
		}
	}
	if most == nil || oldest[most] == newest {
		return nil
	}
	return oldest[most]
}

// forget drops ended work, unless a delegate still has a task of it.
func (m *model) forget(w *work) bool {
	if slices.ContainsFunc(w.tasks, func(r *record) bool { return r.state != done }) {
		w.at = m.now + m.set.retention
		return false
	}
	w.acc.works = slices.DeleteFunc(w.acc.works, func(o *work) bool { return o == w })
	m.ended = slices.DeleteFunc(m.ended, func(o *work) bool { return o == w })
	for _, r := range w.tasks {
		if r.d != nil {
			delete(r.d.stops, r.id)
		}
	}
	return true
}

// abortTask aborts a task.
func (m *model) abortTask(r *record) {
	switch {
	case r.state == done || r.stopping:
	case r.state != acquired || r.d.unaware:
		m.endTask(r, aborted)
	default:
		r.stopping = true
		r.d.stops[r.id] = r
		r.at = min(r.at, m.now+m.set.abort)
	}
}

// requeueForRetry puts a stage back to its old place in the queue.
func (m *model) requeueForRetry(w *work, first *record, notBefore time.Duration) {
	left := w.d
	left.idle = m.now
	w.rejections[left.id] = missed
	w.first.former = true
	for id := range w.rejections {
		w.rejections[id] = missed
	}
	w.notBefore, w.first = notBefore, first
	first.submitted = m.now
	w.tasks = append(w.tasks, first)
	m.enqueue(w)
	m.dispatchFrom(w.acc, w, left)
}
