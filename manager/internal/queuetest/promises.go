package queuetest

import (
	"slices"

	"pgregory.net/rapid"
)

// mark is what was so after the operation before.
type mark struct {
	holders map[*record]*delegate
	waited  map[*record]int // for a delegate alone, since its last offer
}

// promises checks what must hold after each operation (SPEC Q1 to Q4).
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

// capacityHolds: a delegate has no more stages than it may have (SPEC Q1), unless it
// has acquired them before it said that it may have fewer.
func (h *history) capacityHolds(rt *rapid.T, d *delegate) {
	offers := slices.DeleteFunc(d.offers(), func(w *work) bool { return w.stage == nil })
	if d.most > 0 && d.slots() > d.most && len(offers) > 0 {
		rt.Fatalf("%s has %d stages, may have %d, and is offered %s\n%s", d.name, d.slots(), d.most, offers[0].id, h.story())
	}
}

// nobodyWaitsInVain: nothing waits that a delegate that is free may have (SPEC Q2).
func (h *history) nobodyWaitsInVain(rt *rapid.T, a *account) {
	for _, w := range a.waits() {
		for _, d := range a.delegates {
			if !w.held() && d.freeFor(w) {
				rt.Fatalf("%s waits while %s is free\n%s", w.id, d.name, h.story())
			}
		}
	}
}

// inOrder: what a delegate was just given came before all that waited for it already
// and still does (SPEC Q2).
func (h *history) inOrder(rt *rapid.T, a *account, now *mark) {
	for _, w := range a.waits() {
		if w.stage == nil || w.held() {
			continue
		}
		now.waited[w.first] = w.first.seq
		if seq, waited := h.mark.waited[w.first]; !waited || seq != w.first.seq {
			continue // it has come, come back or become possible with this operation, maybe after what was given
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
