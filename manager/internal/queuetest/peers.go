package queuetest

import (
	"slices"
	"time"
)

// This file models delegates that can serve each other's transactions (rule Q3).

// server returns the delegate that gets a new task of a stage: the stage's, or if that is
// lost the best other one of its group.
func (m *model) server(r *record) *delegate {
	if r.d.lost {
		if d := m.peer(r); d != nil {
			return d
		}
	}
	return r.d
}

// peer returns the best other delegate of the group for a task that is not acquired.
func (m *model) peer(r *record) (best *delegate) {
	rank := func(d *delegate) []int { return []int{-d.free(), d.slots(), len(d.open), int(d.idle), d.order} }
	w := r.w
	for _, d := range w.acc.delegates {
		if d == r.d || d.group != r.d.group || d.group == "" || !d.takes() {
			continue
		}
		needs := []string{r.kind}
		if !r.detached {
			needs = w.variants[w.variant]
			if !d.tagged(w) {
				continue
			}
		}
		if len(d.types) > 0 && slices.ContainsFunc(needs, func(t string) bool { return !slices.Contains(d.types, t) }) {
			continue
		}
		if best == nil || slices.Compare(rank(d), rank(best)) < 0 {
			best = d
		}
	}
	return best
}

// handOver offers a task that is not acquired to another delegate of the group.
func (m *model) handOver(r *record) bool {
	d := m.peer(r)
	if d == nil {
		return false
	}
	m.takeBack(r)
	m.giveFurther(r, d)
	return true
}

// giveFurther offers a task of a running stage, which moves to the delegate with it.
func (m *model) giveFurther(r *record, d *delegate) {
	if w := r.w; !r.detached && w.d != d {
		w.d.idle = m.now
		w.rejections[w.d.id] = missed
		w.d = d
	}
	m.give(r, d)
	r.at = m.offerDeadline(r)
	m.dispatch(r.w.acc)
	m.withdrawExcess(d)
}

// deadline returns when a further task times out that is not acquired.
func (m *model) deadline(r *record) time.Duration {
	if r.detached {
		return never
	}
	return r.submitted + r.timeout + m.set.answer
}

// offerDeadline returns when the offer of a further task ends.
func (m *model) offerDeadline(r *record) time.Duration {
	if r.d.group == "" {
		return m.deadline(r)
	}
	return min(m.deadline(r), m.now+m.set.acquire)
}
