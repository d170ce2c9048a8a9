package queue

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// checkedIndex compares each decision of the index with rules Q2 and Q3 as they are
// written: a look at all works and all delegates.
type checkedIndex struct {
	t         require.TestingT
	decisions int
}

// checkDecisions checks every decision of q from now on.
func checkDecisions(t require.TestingT, q *Queue) *checkedIndex {
	c := &checkedIndex{t: t}
	q.decider = c
	return c
}

func (c *checkedIndex) bestDelegate(w *work, left *delegate) *delegate {
	c.decisions++
	want, got := scanDelegates(w, left), index{}.bestDelegate(w, left)
	if want != got {
		assert.Failf(c.t, "another delegate", "%s goes from %s to %s, not to %s", w.ID, name(left), name(got), name(want))
		c.t.FailNow()
	}
	return got
}

func (c *checkedIndex) nextWork(d *delegate) *work {
	c.decisions++
	want := scanWorks(d, waitingWorks(d.account))
	if want != nil && admitting(want) { // it is offered by another decision of the same operation
		want = scanWorks(d, func(yield func(*work) bool) {
			for w := range waitingWorks(d.account) {
				if !admitting(w) && !yield(w) {
					return
				}
			}
		})
	}
	got := index{}.nextWork(d)
	if want != got {
		assert.Failf(c.t, "another work", "%s gets %+v, not %+v", name(d), got, want)
		c.t.FailNow()
	}
	return got
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
			if w.state == pending && w.first.state == idle && !yield(w) {
				return
			}
		}
	}
}

// eligible reports whether the delegate may get a work, whether or not it has room.
func (d *delegate) eligible(w *work) bool {
	return d.hasAll(*w.Selectors) && d.takesWork() && w.was[d.info.ID] != refused && d.variant(w) >= 0
}

func (d *delegate) hasAll(selectors []string) bool {
	for _, s := range selectors {
		if !d.tags[fold(s)] {
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
	for _, g := range w.requirement.groups {
		if g.max > 0 && usage(w.account, g) >= g.max {
			return true
		}
	}
	return false
}

// usage counts the stages of a group that delegates have.
func usage(a *account, g *group) (n int) {
	for _, w := range a.works {
		if w.Stage && (w.state == given || w.state == running) && slices.Contains(w.requirement.groups, g) {
			n++
		}
	}
	return n
}

// admitting reports whether a work waits for room in a group that has room by now: while
// Queue.admit goes through such works.
func admitting(w *work) bool {
	g := w.requirement.blocked
	return g != nil && !g.full()
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
	return cmp.Or(cmp.Compare(o.Priority, w.Priority), cmp.Compare(w.seq, o.seq))
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
			late, bestLate := w.was[d.info.ID] == missed, w.was[best.info.ID] == missed
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
		case !d.hasAll(*w.Selectors):
			continue
		case d.variant(w) < 0:
			tagged++
			continue
		}
		tagged++
		able++
		if d.lost || d.info.Draining || d.drained {
			continue
		}
		present++
		if w.was[d.info.ID] == refused {
			continue
		}
		willing++
		slots += d.max
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
		cmp.Compare(d.idleSince, o.idleSince), cmp.Compare(d.order, o.order)) < 0
}

// checkIndex checks that all works, requirements and delegates are where the decisions
// look for them, and only there.
func checkIndex(t require.TestingT, a *account) {
	a.updateRanks()
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
				like := Work{Stage: w.Stage, Selectors: *w.Selectors, Variants: w.Variants}
				like.Groups = r.groupNames()
				require.Equal(t, key, string(like.appendKey(nil, w.refusals())))
			}
		}
		require.Positive(t, members)
		require.Equal(t, members, r.members)
		checkRequirement(t, r)
	}
	checkGroups(t, a)
	users := map[*tag]int{}
	for _, r := range a.requirements {
		if r.shard != nil {
			users[r.shard.tag]++
		}
	}
	for _, d := range a.delegates {
		require.Len(t, d.holds, 1+len(d.tags))
	}
	for name, tg := range a.tags {
		require.Equal(t, name, tg.name)
		require.True(t, tg.users > 0 || len(tg.holders) > 0, "a tag that no delegate has and no requirement uses")
		checkTag(t, a, tg, users[tg])
	}
	require.Len(t, a.everyone.holders, len(a.delegates))
	checkTag(t, a, a.everyone, users[a.everyone])
}

// checkTag checks that the shards of a tag have the requirements that wait there and, as
// candidates, the delegates of the tag that can take a work, at their present ranks.
func checkTag(t require.TestingT, a *account, tg *tag, users int) {
	require.Equal(t, users, tg.users)
	for d := range tg.holders {
		require.Same(t, d, a.delegates[d.info.ID])
		require.True(t, tg == a.everyone || d.tags[tg.name])
	}
	for k, s := range tg.shards {
		if s == nil {
			continue
		}
		checkSorted(t, s.waiters)
		for w := range s.waiters.all() {
			require.Same(t, s, w.requirement.shard)
			require.Nil(t, w.requirement.blocked)
			require.Equal(t, w, w.requirement.entry)
		}
		checkSorted(t, s.candidates)
		candidates := map[*delegate]rank{}
		for c := range s.candidates.all() {
			candidates[c.delegate] = c.rank
		}
		want := map[*delegate]rank{}
		for d := range tg.holders {
			if r, ok := d.rank(kind(k)); ok {
				want[d] = r
			}
		}
		require.Equal(t, want, candidates)
		require.Equal(t, len(want), s.candidates.size())
	}
}

// checkGroups checks that a requirement waits for a group only while the group is full.
func checkGroups(t require.TestingT, a *account) {
	require.True(t, a.gate.closed || a.gate.waiters.size() == 0)
	checkSorted(t, a.gate.waiters)
	for name, g := range a.groups {
		require.Equal(t, name, g.name)
		require.Equal(t, usage(a, g), g.used)
		require.True(t, g.max > 0 || g.requirements > 0, "a group without a limit and without stages")
		require.True(t, g.full() || g.waiters.size() == 0, "%s has room, and requirements wait for it", name)
		checkSorted(t, g.waiters)
		requirements := 0
		for _, r := range a.requirements {
			if slices.Contains(r.groups, g) {
				requirements++
			}
		}
		require.Equal(t, requirements, g.requirements)
		for w := range g.waiters.all() {
			require.Same(t, g, w.requirement.blocked)
			require.Equal(t, w, w.requirement.entry)
		}
	}
}

// checkRequirement checks that a requirement of which works wait is in one list, at the
// turn of its first work, and that no free delegate may have that work if the list is a
// shard's.
func checkRequirement(t require.TestingT, r *requirement) {
	checkSorted(t, r.works)
	var first *work
	for w := range r.works.all() {
		require.Same(t, r, w.work.requirement)
		require.True(t, w.work.queued)
		if first == nil || scanCompare(w.work, first) < 0 {
			first = w.work
		}
	}
	if first == nil {
		require.Zero(t, r.entry)
		require.Nil(t, r.shard)
		require.Nil(t, r.blocked)
		return
	}
	require.Same(t, first, r.first())
	require.Equal(t, waiter{first.turn(), r}, r.entry)
	require.Contains(t, slices.Collect(r.list().all()), r.entry)
	if r.blocked == nil {
		for _, d := range r.account.delegates {
			require.False(t, d.eligible(first) && d.hasRoom(first), "%s is not blocked and %s is free", first.ID, name(d))
		}
	}
}

func checkSorted[T ordered[T]](t require.TestingT, s sorted[T]) {
	var previous *T
	for _, chunk := range s.chunks {
		all := chunk.elements
		require.NotEmpty(t, all)
		require.LessOrEqual(t, len(all), chunkSize)
		require.Equal(t, all[len(all)-1], chunk.last)
		for i := range all {
			require.True(t, previous == nil || (*previous).before(all[i]), "the list is not in order")
			previous = &all[i]
		}
	}
}
