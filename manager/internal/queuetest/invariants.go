package queuetest

import (
	"slices"

	"pgregory.net/rapid"
)

// snapshot is the state after the previous operation.
type snapshot struct {
	holders map[*record]*delegate
	waiting map[*record]int // tasks that only one delegate may have, since its last offer
}

// checkInvariants checks the rules that hold after each operation (rules Q1 to Q4).
func (h *history) checkInvariants(rt *rapid.T) {
	now := snapshot{holders: map[*record]*delegate{}, waiting: map[*record]int{}}
	for _, a := range h.accounts {
		for _, d := range a.delegates {
			h.checkCapacity(rt, d)
			for _, r := range d.open {
				if other := now.holders[r]; other != nil {
					rt.Fatalf("both %[2]s and %[3]s have %[1]s", r.id, other.name, d.name)
				}
				now.holders[r] = d
			}
		}
		h.checkNoneIdle(rt, a)
		h.checkOrder(rt, a, &now)
	}
	h.previous = now
}

// checkCapacity checks that no delegate has more stages than its capacity (rule Q1),
// except stages that it acquired before it lowered the capacity.
func (h *history) checkCapacity(rt *rapid.T, d *delegate) {
	offers := slices.DeleteFunc(d.offers(), func(w *work) bool { return w.stage == nil })
	if d.maxStages > 0 && d.slots() > d.maxStages && len(offers) > 0 {
		rt.Fatalf("%s has %d of at most %d stages and gets an offer of %s\n%s", d.name, d.slots(), d.maxStages, offers[0].id, h.story())
	}
}

// checkNoneIdle checks that no work waits that a free delegate could have (rule Q2).
func (h *history) checkNoneIdle(rt *rapid.T, a *account) {
	for _, w := range a.waiting() {
		for _, d := range a.delegates {
			if !w.isBlocked() && d.freeFor(w) {
				rt.Fatalf("%s waits while %s is free\n%s", w.id, d.name, h.story())
			}
		}
	}
}

// checkOrder checks that new offers come before all work that already waited and
// still waits (rule Q2).
func (h *history) checkOrder(rt *rapid.T, a *account, now *snapshot) {
	for _, w := range a.waiting() {
		if w.stage == nil || w.isBlocked() {
			continue
		}
		now.waiting[w.first] = w.first.seq
		if seq, waited := h.previous.waiting[w.first]; !waited || seq != w.first.seq {
			continue // the work arrived, returned or became possible in this operation, perhaps after the offer
		}
		for _, d := range a.delegates {
			for _, given := range d.offers() {
				fresh := given.stage != nil && h.previous.holders[given.first] != d
				if fresh && d.eligible(w) && compareWaiting(w, given) < 0 {
					rt.Fatalf("%s got %s before %s\n%s", d.name, given.id, w.id, h.story())
				}
			}
		}
	}
}
