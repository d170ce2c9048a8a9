package queue

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// checkDecisions compares decisions with rules Q2 and Q3 as they are written: a look at all
// works and all delegates. It makes those that would come next: the next work of each
// delegate, if that had a free slot, and the delegate of each work, if it began to wait.
func checkDecisions(t require.TestingT, a *account) {
	for _, d := range a.delegates {
		most := d.Max
		d.Max = 0
		want, got := scanWorks(d, waitingWorks(a)), d.nextWork()
		d.Max = most
		if want != got {
			assert.Failf(t, "another work", "%s gets %+v, not %+v", name(d), got, want)
			t.FailNow()
		}
	}
	for _, w := range a.works {
		if w.State == over || blocked(w) {
			continue
		}
		r := *w.requirement
		r.tag = a.tag(a.rarest(r.selectors))
		probe := *w
		probe.requirement = &r
		for _, left := range []*delegate{nil, w.delegate} {
			if want, got := scanDelegates(w, left), probe.bestDelegate(left); want != got {
				assert.Failf(t, "another delegate", "%s goes from %s to %s, not to %s", w.ID, name(left), name(got), name(want))
				t.FailNow()
			}
		}
		a.dropTag(r.tag)
	}
}

func name(d *delegate) string {
	if d == nil {
		return "no delegate"
	}
	return d.info.Name
}

// waitingWorks yields all works of an account that wait.
func waitingWorks(a *account) iter.Seq[*work] {
	return func(yield func(*work) bool) {
		for _, w := range a.works {
			if w.State == pending && w.first.State == idle && !yield(w) {
				return
			}
		}
	}
}

// eligible reports whether the delegate may get a work, whether or not it has room.
func (d *delegate) eligible(w *work) bool {
	return d.hasSelectors(w) && d.takesWork() && w.Was[d.info.ID] != refused && d.variant(w.requirement) >= 0
}

func (d *delegate) hasSelectors(w *work) bool {
	for _, s := range w.Selectors {
		if !d.has[fold(s)] {
			return false
		}
	}
	return true
}

func (d *delegate) hasRoom(w *work) bool { return !w.Stage || d.free() > 0 }

// blocked reports whether a limit keeps a work from all delegates.
func blocked(w *work) bool {
	if w.account.gate.closed {
		return true
	}
	for _, g := range w.requirement.in {
		if g.max > 0 && usage(w.account, g) >= g.max {
			return true
		}
	}
	return false
}

// usage counts the stages of a group that delegates have.
func usage(a *account, g *group) (n int) {
	for _, w := range a.works {
		if w.Stage && (w.State == given || w.State == running) && slices.Contains(w.requirement.in, g) {
			n++
		}
	}
	return n
}

// scanWorks returns the first of the works that the delegate may have now.
func scanWorks(d *delegate, all iter.Seq[*work]) *work {
	var best *work
	for w := range all {
		if d.eligible(w) && d.hasRoom(w) && !blocked(w) && (best == nil || scanCompare(w, best) < 0) {
			best = w
		}
	}
	return best
}

// scanCompare orders works: high priority first, then the oldest.
func scanCompare(w, o *work) int {
	return cmp.Or(cmp.Compare(o.Priority, w.Priority), cmp.Compare(w.Seq, o.Seq))
}

func scanDelegates(w *work, left *delegate) *delegate {
	var best *delegate
	if blocked(w) {
		return nil
	}
	for _, d := range w.account.delegates {
		if d == left || !d.eligible(w) || !d.hasRoom(w) {
			continue
		}
		if best != nil {
			late, bestLate := w.Was[d.info.ID] == missed, w.Was[best.info.ID] == missed
			if late && !bestLate || late == bestLate && preferred(best, d, w.Stage) {
				continue
			}
		}
		best = d
	}
	return best
}

// scanNumber returns a work's place in the queue.
func scanNumber(w *work) int {
	n := 1
	for o := range waitingWorks(w.account) {
		if o.Stage == w.Stage && scanCompare(o, w) < 0 {
			n++
		}
	}
	return n
}

// scanReason returns a part of the reason why a work waits.
func scanReason(w *work) string {
	var tagged, able, present, willing, slots int
	for _, d := range w.account.delegates {
		switch {
		case !d.hasSelectors(w):
			continue
		case d.variant(w.requirement) < 0:
			tagged++
			continue
		}
		tagged++
		able++
		if d.Lost || d.info.Draining || d.Drained {
			continue
		}
		present++
		if w.Was[d.info.ID] == refused {
			continue
		}
		willing++
		slots += d.Max
	}
	switch {
	case w.account.gate.closed:
		return "paused"
	case len(w.account.delegates) == 0:
		return "no delegate is registered"
	case tagged == 0:
		return "no delegate has the tags"
	case able == 0:
		return "no delegate with the right tags supports"
	case present == 0:
		return "lost or draining"
	case willing == 0:
		return "has asked for another one"
	case blocked(w):
		return "is reached"
	default:
		return fmt.Sprintf("%s at capacity (%s)", map[bool]string{
			true: "one eligible delegate,", false: fmt.Sprintf("%d eligible delegates, all", willing),
		}[willing == 1], plural(slots, "slot"))
	}
}

// preferred reports whether d gets a work before o.
func preferred(d, o *delegate, stage bool) bool {
	var bySlots int
	if stage {
		bySlots = cmp.Or(cmp.Compare(o.free(), d.free()), cmp.Compare(len(d.slots), len(o.slots)))
	}
	return cmp.Or(bySlots, cmp.Compare(len(d.open), len(o.open)),
		cmp.Compare(d.Idle, o.Idle), cmp.Compare(d.Order, o.Order)) < 0
}

// checkIndex checks that all works, requirements and delegates are where the decisions
// look for them, and only there.
func checkIndex(t require.TestingT, a *account) {
	checkDecisions(t, a)
	for key, r := range a.requirements {
		members := 0
		for _, w := range a.works {
			if w.requirement != r {
				continue
			}
			members++
			require.Equal(t, w.queued, slices.Contains(slices.Collect(r.works.all()), waiting{w.turn(), w}))
			require.Equal(t, w.refusals(), r.refused)
			if w.Variants != nil {
				n := needOf(&Work{Stage: w.Stage, Selectors: w.Selectors, Groups: r.groups, Variants: w.Variants})
				n.refused = w.refusals()
				require.Equal(t, key, n.key())
			}
		}
		require.Positive(t, members)
		require.Equal(t, members, r.members)
		checkRequirement(t, r)
	}
	checkGroups(t, a)
	for _, d := range a.delegates {
		require.Len(t, d.tags, 1+len(d.has))
		for _, tg := range d.tags {
			require.Same(t, a.tags[tg.name], tg)
			require.Contains(t, tg.holders, d)
		}
	}
	for name, tg := range a.tags {
		require.Equal(t, name, tg.name)
		checkTag(t, a, tg)
	}
}

// checkTag checks that a tag has the requirements that wait there and, as candidates, the
// delegates that can take a work, in their present order.
func checkTag(t require.TestingT, a *account, tg *tag) {
	require.Positive(t, len(tg.holders)+tg.waiters[stages].size+tg.waiters[singles].size, "a tag that is not used")
	for d := range tg.holders {
		require.Same(t, d, a.delegates[d.info.ID])
		require.True(t, tg.name == "" || d.has[tg.name])
	}
	for k := range tg.waiters {
		a.updateCandidates(kind(k))
		checkSorted(t, tg.waiters[k])
		for w := range tg.waiters[k].all() {
			require.Same(t, tg, w.of.tag)
			require.Same(t, &tg.waiters[k], w.of.list)
		}
		checkSorted(t, tg.candidates[k])
		var want []candidate
		for d := range tg.holders {
			if c := d.candidate(kind(k)); c.delegate != nil {
				want = append(want, c)
			}
		}
		require.ElementsMatch(t, want, slices.Collect(tg.candidates[k].all()))
	}
}

// checkGroups checks that a requirement waits for a group only while the group is full.
func checkGroups(t require.TestingT, a *account) {
	require.True(t, a.gate.closed || a.gate.waiters.size == 0)
	checkSorted(t, a.gate.waiters)
	for name, g := range a.groups {
		require.Equal(t, name, g.name)
		require.Equal(t, usage(a, g), g.used)
		require.True(t, g.max > 0 || g.requirements > 0, "a group without a limit and without stages")
		require.True(t, g.full() || g.waiters.size == 0, "%s has room, and requirements wait for it", name)
		checkSorted(t, g.waiters)
		requirements := 0
		for _, r := range a.requirements {
			if slices.Contains(r.in, g) {
				requirements++
			}
		}
		require.Equal(t, requirements, g.requirements)
		for w := range g.waiters.all() {
			require.Same(t, g, w.of.full)
			require.Same(t, &g.waiters, w.of.list)
		}
	}
}

// checkRequirement checks that a requirement of which works wait is in one list, at the
// turn of its first work, and that no free delegate may have that work if the list is that
// of a tag.
func checkRequirement(t require.TestingT, r *requirement) {
	checkSorted(t, r.works)
	var first *work
	for w := range r.works.all() {
		require.Same(t, r, w.of.requirement)
		require.True(t, w.of.queued)
		if first == nil || scanCompare(w.of, first) < 0 {
			first = w.of
		}
	}
	if first == nil {
		require.Nil(t, r.list)
		require.Nil(t, r.tag)
		require.Nil(t, r.full)
		return
	}
	require.Same(t, first, r.first())
	require.Contains(t, slices.Collect(r.list.all()), waiter{first.turn(), r})
	if r.full == nil {
		require.Same(t, &r.tag.waiters[r.kind], r.list)
		for _, d := range r.account.delegates {
			require.False(t, d.eligible(first) && d.hasRoom(first), "%s is not blocked and %s is free", first.ID, name(d))
		}
	}
}

func checkSorted[T ordered[T]](t require.TestingT, s sorted[T]) {
	var previous *T
	size := 0
	for _, chunk := range s.chunks {
		require.NotEmpty(t, chunk)
		require.LessOrEqual(t, len(chunk), chunkSize)
		size += len(chunk)
		for i := range chunk {
			require.True(t, previous == nil || (*previous).before(chunk[i]), "the list is not in order")
			previous = &chunk[i]
		}
	}
	require.Equal(t, size, s.size)
}
