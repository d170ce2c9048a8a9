package queuetest

import (
	"slices"

	"pgregory.net/rapid"
)

// snapshot is the state after the previous operation.
type mark struct {
	holders map[*record]*delegate
	waited  map[*record]int // tasks that only one delegate may have, since its last offer
}

// checkInvariants checks the rules that hold after each operation (rules Q1 to Q4).
func (h *history) promises(rt *rapid.T) {
	now := mark{holders: map[*record]*delegate{}, waited: map[*record]int{}}
	for _, a := range h.accounts {
		for _, d := range a.delegates {
			h.capacityHolds(rt, d)
			for _, r := range d.open {
				if other := now.holders[r]; other != nil {
					rt.Fatalf("%s is with %s and %s", r.id, other.name, d.name)
				}
				now.holders[r] = d
			}
		}
		h.nobodyWaitsInVain(rt, a)
		h.inOrder(rt, a, &now)
	}
	h.mark = now
}

// checkCapacity checks that no delegate has more stages than its capacity (rule Q1),
// except stages that it acquired before it lowered the capacity.
func (h *history) capacityHolds(rt *rapid.T, d *delegate) {
	offers := slices.DeleteFunc(d.offers(), func(w *work) bool { return w.stage == nil })
	if d.most > 0 && d.slots() > d.most && len(offers) > 0 {
		rt.Fatalf("%s has %d stages, may have %d, and is offered %s\n%s", d.name, d.slots(), d.most, offers[0].id, h.story())
	}
}

// checkNoneIdle checks that no work waits that a free delegate could have (rule Q2).
func (h *history) nobodyWaitsInVain(rt *rapid.T, a *account) {
	for _, w := range a.waits() {
		for _, d := range a.delegates {
			if !w.held() && d.freeFor(w) {
				rt.Fatalf("%s waits while %s is free\n%s", w.id, d.name, h.story())
			}
		}
	}
}

// checkOrder checks that new offers come before all work that already waited and
// still waits (rule Q2).
func (h *history) inOrder(rt *rapid.T, a *account, now *mark) {
	for _, w := range a.waits() {
		if w.stage == nil || w.held() {
			continue
		}
		now.waited[w.first] = w.first.seq
		if seq, waited := h.mark.waited[w.first]; !waited || seq != w.first.seq {
			continue // the work arrived, returned or became possible in this operation, perhaps after the offer
		}
		for _, d := range a.delegates {
			for _, given := range d.offers() {
				fresh := given.stage != nil && h.mark.holders[given.first] != d
				if fresh && d.eligible(w) && before(w, given) < 0 {
					rt.Fatalf("%s was given %s before %s\n%s", d.name, given.id, w.id, h.story())
				}
			}
		}
	}
}
