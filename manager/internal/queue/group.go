package queue

import (
	"fmt"
	"maps"
	"slices"
)

// Limits bound how many stages of a group are given out at a time. A lane whose
// class has a full group is of no use to a decision that meets it: it is parked
// there, out of its line, and is not met again. When the group has room, its lanes
// come back, the first of them first, until it is full again. So a lane that is in
// its line waits for no group, or has not been met since: then no delegate that may
// have it is free.

// group is stages of an account that share a limit.
type group struct {
	name    string // empty: all stages of the account
	max     int    // 0: no limit
	closed  bool   // nothing is given out
	used    int    // stages that are given out
	classes int    // whose stages belong to it
	parked  order[*lane]
}

func (g *group) full() bool { return g.closed || g.max > 0 && g.used >= g.max }

// reason says what keeps a stage waiting while the group is full.
func (g *group) reason() string {
	if g.closed {
		return "the account is paused, nothing is given to delegates until it is resumed"
	}
	if g.name == "" {
		return fmt.Sprintf("the limit of %d for the account is reached", g.max)
	}
	return fmt.Sprintf("the limit of %d for %q is reached", g.max, g.name)
}

// Limit bounds the stages of a group.
type Limit struct {
	// Group is empty for all stages of the account.
	Group string
	// Max is how many may be given out: offered to a delegate, or acquired and not
	// released. Used is how many are: more than Max after it was lowered.
	Max, Used int
}

// SetLimit bounds how many stages of a group ([Work.Groups]) delegates have at a
// time: from the offer to [Queue.Release]; the empty group is all stages of the
// account. 0 and below is no bound. A higher limit counts at once; nothing is taken
// back for a lower one.
func (q *Queue) SetLimit(account, name string, most int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, a := q.now(), q.account(account)
	g := a.group(name)
	g.max = max(most, 0)
	q.admit([]*group{g}, nil, nil, now)
	a.tidyGroup(g)
}

// Pause keeps everything that waits in an account from its delegates, or ends that:
// then what waits is given away in its order. Offers go back to their places;
// delegates keep what they have acquired, and get further tasks of their stages.
func (q *Queue) Pause(account string, paused bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, a := q.now(), q.account(account)
	a.gate.closed = paused
	if !paused {
		q.admit([]*group{&a.gate}, nil, nil, now)
		return
	}
	for _, d := range a.sorted() {
		q.withdraw(d, now)
	}
}

// Paused tells whether an account is paused.
func (q *Queue) Paused(account string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.accounts[account]
	return a != nil && a.gate.closed
}

// Limits are those of an account, by the names of their groups.
func (q *Queue) Limits(account string) []Limit {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.accounts[account]
	if a == nil {
		return nil
	}
	return a.limits()
}

func (a *account) limits() (all []Limit) {
	for _, name := range slices.Sorted(maps.Keys(a.groups)) {
		if g := a.groups[name]; g.max > 0 {
			all = append(all, Limit{Group: g.name, Max: g.max, Used: g.used})
		}
	}
	return all
}

// group finds or makes a group.
func (a *account) group(name string) *group {
	g := a.groups[name]
	if g == nil {
		g = &group{name: name}
		a.groups[name] = g
	}
	return g
}

func (a *account) tidyGroup(g *group) {
	if g.classes == 0 && g.max == 0 {
		delete(a.groups, g.name)
	}
}

// groupNames are those of the class's groups, but for the account's.
func (c *class) groupNames() (names []string) {
	for _, g := range c.groups {
		if g.name != "" {
			names = append(names, g.name)
		}
	}
	return names
}

// full is a group for whose sake none of the class's works can be given out, nil
// when there is none.
func (c *class) full() *group {
	if c.acc.gate.closed {
		return &c.acc.gate
	}
	for _, g := range c.groups {
		if g.full() {
			return g
		}
	}
	return nil
}

// count notes that one of the class's stages is given out, or no more.
func (c *class) count(n int) {
	for _, g := range c.groups {
		g.used += n
	}
}

// park takes a lane out of its line, to wait for a group.
func (n *lane) park(g *group) {
	n.class.line.lanes.remove(n)
	n.parked = g
	g.parked.fix(n)
}

// unpark puts a lane back into its line.
func (n *lane) unpark() {
	n.parked.parked.remove(n)
	n.parked = nil
	n.class.line.lanes.fix(n)
}

// room is the first of the lanes that wait for one of the groups and need not any
// more, nil when there is none.
func room(groups []*group) *lane {
	var first *lane
	for _, g := range groups {
		if !g.full() && len(g.parked) > 0 && (first == nil || g.parked[0].before(first)) {
			first = g.parked[0]
		}
	}
	return first
}

// admit gives works away for which groups have room now. A slot of the delegate d,
// nil for nobody, may have become free with it: whichever work comes first is served
// first. The one that has left it, nil for none, tries the others before. The caller
// holds mu.
func (q *Queue) admit(groups []*group, d *delegate, from *work, now instant) {
	n := room(groups)
	if n == nil {
		return
	}
	for next := d.first(); n != nil; n = room(groups) { // next is the first in d's lines
		if next != nil && next.before(n.first) {
			q.hand(next, d, now)
			next = d.first()
			continue
		}
		g, w := n.parked, n.first
		n.unpark()
		var left *delegate
		if w == from {
			left = d
		}
		if q.place(w, left, now); n.first != nil && n.first != w {
			n.park(g) // its next one has its own turn
		}
		if w == from || next != nil && (w.d == d || next.class.full() != nil) {
			next = d.first()
		}
	}
}

// fillBefore gives a delegate what waits for it and comes before a work that has left
// it. That one may need the room in the groups; and without any limit the numbers of
// the offers decide what is done first of what is due at once.
func (q *Queue) fillBefore(d *delegate, w *work, now instant) {
	for o := d.first(); o != nil && o.before(w); o = d.first() {
		q.hand(o, d, now)
	}
}

// hand gives a delegate what waits for it first.
func (q *Queue) hand(w *work, d *delegate, now instant) {
	if q.filling != nil {
		q.filling(d, w)
	}
	q.offer(w, d, d.variant(w), now)
}

// first is what waits for the delegate first, nil when it takes nothing.
func (d *delegate) first() *work {
	if d == nil || !d.takes() {
		return nil
	}
	return d.next()
}
