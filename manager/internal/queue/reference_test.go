package queue

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The rules of SPEC Q2 and Q3 as they are written: for each decision a look at
// everything. The queue must decide the same without that.

// compare checks every decision of q from now on.
func compare(t require.TestingT, q *Queue) (decisions *int) {
	decisions = new(int)
	q.placing = func(w *work, left, to *delegate) {
		*decisions++
		if want := scanDelegates(w, left); want != to {
			assert.Failf(t, "another delegate", "%s goes from %s to %s, not to %s", w.ID, name(left), name(to), name(want))
			t.FailNow()
		}
	}
	q.filling = func(d *delegate, with *work) {
		*decisions++
		if want := scanWorks(d); want != with {
			assert.Failf(t, "another work", "%s gets %+v, not %+v", name(d), with, want)
			t.FailNow()
		}
	}
	return decisions
}

func name(d *delegate) string {
	if d == nil {
		return "nobody"
	}
	return d.info.Name
}

// waiting are all works of an account that wait.
func waitingWorks(a *account) iter.Seq[*work] {
	return func(yield func(*work) bool) {
		for _, w := range a.works {
			if w.state == waiting && w.first.state == idle && !yield(w) {
				return
			}
		}
	}
}

// blocked tells whether a limit keeps a work from everybody.
func blocked(w *work) bool {
	if w.acc.gate.closed {
		return true
	}
	for _, g := range w.class.groups {
		if g.max > 0 && usage(w.acc, g) >= g.max {
			return true
		}
	}
	return false
}

// usage counts the stages of a group that delegates have.
func usage(a *account, g *group) (n int) {
	for _, w := range a.works {
		if w.Stage && (w.state == given || w.state == running) && slices.Contains(w.class.groups, g) {
			n++
		}
	}
	return n
}

func scanWorks(d *delegate) *work {
	var best *work
	for w := range waitingWorks(d.acc) {
		if d.eligible(w) && d.hasRoom(w) && !blocked(w) && (best == nil || w.compare(best) < 0) {
			best = w
		}
	}
	return best
}

func scanDelegates(w *work, left *delegate) *delegate {
	var best *delegate
	if blocked(w) {
		return nil
	}
	for _, d := range w.acc.delegates {
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

// scanNumber is a work's place in the queue.
func scanNumber(w *work) int {
	n := 1
	for o := range waitingWorks(w.acc) {
		if o.Stage == w.Stage && o.compare(w) < 0 {
			n++
		}
	}
	return n
}

// scanWhy is why a work waits.
func scanWhy(w *work) string {
	var tagged, able, present, willing, slots int
	for _, d := range w.acc.delegates {
		switch {
		case !d.hasTags(*w.Selectors):
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
	case w.acc.gate.closed:
		return "paused"
	case len(w.acc.delegates) == 0:
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

// preferred tells whether d comes before o.
func preferred(d, o *delegate, stage bool) bool {
	var bySlots int
	if stage {
		bySlots = cmp.Or(cmp.Compare(o.free(), d.free()), cmp.Compare(len(d.slots), len(o.slots)))
	}
	return cmp.Or(bySlots, cmp.Compare(len(d.open), len(o.open)),
		cmp.Compare(d.idleSince, o.idleSince), cmp.Compare(d.order, o.order)) < 0
}

// checkIndex checks that everything is where the decisions look for it, and
// nothing else is.
func checkIndex(t require.TestingT, a *account) {
	a.settle()
	idle, bits := 0, uint64(0)
	for key, c := range a.classes {
		members, waiting := 0, 0
		for _, w := range a.works {
			if w.class != c {
				continue
			}
			members++
			if w.Variants != nil {
				like := Work{Stage: w.Stage, Selectors: *w.Selectors, Variants: w.Variants}
				like.Groups = c.groupNames()
				require.Equal(t, key, string(like.needs(nil)))
			}
			if w.lane != nil {
				waiting++
				require.Equal(t, w.Priority, w.lane.priority)
				no := 0
				for id, f := range w.was {
					if f == refused {
						no++
						require.Contains(t, w.lane.refused, id)
					}
				}
				require.Len(t, w.lane.refused, no)
			}
		}
		require.Equal(t, members, c.members)
		require.Equal(t, waiting, c.waiting)
		if members == 0 {
			idle++
		}
		for n := range c.lanes {
			checkLane(t, n)
		}
	}
	require.Equal(t, idle, a.idle)
	checkGroups(t, a)
	members := 0
	for key, c := range a.crews {
		members += len(c.members)
		require.Equal(t, key, c.key)
		require.NotEmpty(t, c.members)
		for k, o := range c.free {
			checkOrder(t, o)
			checkStalls(t, a, c, kind(k))
		}
	}
	require.Equal(t, len(a.delegates), members)
	for _, d := range a.delegates {
		require.Same(t, a.crews[d.crew.key], d.crew)
		require.Contains(t, d.crew.members, d)
		for k := range d.seats {
			r, ok := d.rank(kind(k))
			ok = ok && len(d.crew.stalls[k]) > 0
			require.Equal(t, ok, d.seats[k].index > 0)
			if ok {
				require.Equal(t, r, d.seats[k].rank)
				require.Same(t, &d.seats[k], d.crew.free[k][d.seats[k].index-1])
			}
		}
	}
	for _, tg := range a.tags {
		require.True(t, tg.askers > 0 || len(tg.holders) > 0, "a tag that nobody has or wants")
		require.Equal(t, tg.askers > 0, tg.bit != 0)
		if tg.bit != shared {
			require.Zero(t, bits&tg.bit, "a bit of two tags")
			bits |= tg.bit
		}
	}
	require.Equal(t, bits, a.bits)
}

// checkGroups: a lane waits for a group only while that is full.
func checkGroups(t require.TestingT, a *account) {
	require.True(t, a.gate.closed || len(a.gate.parked) == 0)
	checkOrder(t, a.gate.parked)
	for name, g := range a.groups {
		require.Equal(t, name, g.name)
		require.Equal(t, usage(a, g), g.used)
		require.True(t, g.max > 0 || g.classes > 0, "a group that nobody needs")
		require.True(t, g.full() || len(g.parked) == 0, "%s has room and is waited for", name)
		checkOrder(t, g.parked)
		classes := 0
		for _, c := range a.classes {
			if slices.Contains(c.groups, g) {
				classes++
			}
		}
		require.Equal(t, classes, g.classes)
		for _, n := range g.parked {
			require.Same(t, g, n.parked)
		}
	}
}

func checkLane(t require.TestingT, n *lane) {
	var first *work
	for w := range n.works {
		require.Same(t, n, w.lane)
		if first == nil || w.before(first) {
			first = w
		}
		if w.index < 0 {
			require.Same(t, w, n.list[-w.index-1-n.base].work)
		}
	}
	checkOrder(t, n.back)
	holes := 0
	for i, s := range n.list {
		require.Equal(t, holes, n.holesBefore(i))
		if s.work == nil {
			holes++
		}
	}
	require.Equal(t, holes, n.holes)
	require.Same(t, first, n.first)
	require.Equal(t, first != nil, n.index > 0)
	if first != nil {
		require.Equal(t, first.seq, n.seq)
	}
	switch {
	case first == nil:
		require.Nil(t, n.parked)
	case n.parked != nil:
		require.Same(t, n, n.parked.parked[n.index-1])
	default:
		for _, d := range n.class.acc.delegates {
			require.False(t, d.eligible(first) && d.hasRoom(first), "%s is not parked and %s is free", first.ID, name(d))
		}
		require.Same(t, n, n.class.line.lanes[n.index-1])
		checkOrder(t, n.class.line.lanes)
	}
}

// checkStalls: a crew has a stall in every line of its tags, in order when
// somebody is free.
func checkStalls(t require.TestingT, a *account, c *crew, k kind) {
	lines := 0
	for _, tg := range c.tags {
		require.True(t, tg == a.everyone || tg.askers > 0)
		l := tg.lines[k]
		if l == nil {
			continue
		}
		lines++
		s := l.all[c]
		require.Same(t, c.stalls[k][l], s)
		require.Equal(t, len(c.free[k]) > 0, s.index > 0)
		if s.index > 0 {
			require.Same(t, s, l.crews[s.index-1])
			require.Equal(t, c.free[k][0].rank, s.best)
			checkOrder(t, l.crews)
		}
	}
	require.Len(t, c.stalls[k], lines)
}

func checkOrder[T ranked[T]](t require.TestingT, o order[T]) {
	for i, x := range o {
		require.Equal(t, i+1, *x.place())
		if i > 0 {
			require.False(t, x.before(o[(i-1)/2]), "the order is none")
		}
	}
}
