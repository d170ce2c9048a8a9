package queue

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// group is the state of stages of an account that share a limit. A requirement that a decision finds
// blocked by a full group waits for the group, so that no other decision passes it. When
// the group has room, its requirements have their turns, the first one first, until the
// group is full again.
type group struct {
	name         string // empty: all stages of the account
	max          int    // 0: no limit
	closed       bool   // nothing is given out
	note         string // why it is closed, for people
	used         int    // stages that are given out
	requirements int    // whose stages belong to it
	waiters      sorted[waiter]
}

// room returns how many more stages may be given out.
func (g *group) room() int {
	switch {
	case g.closed:
		return 0
	case g.max == 0:
		return math.MaxInt
	}
	return max(g.max-g.used, 0)
}

func (g *group) full() bool { return g.room() == 0 }

// reason explains why a stage waits while the group is full.
func (g *group) reason() string {
	switch {
	case g.closed && g.note != "":
		return "the account is paused (" + g.note + "), nothing is given to delegates until it is resumed"
	case g.closed:
		return "the account is paused, nothing is given to delegates until it is resumed"
	case g.name == "":
		return fmt.Sprintf("the limit of %d for the account is reached", g.max)
	}
	return fmt.Sprintf("the limit of %d for %q is reached", g.max, g.name)
}

// Limit bounds the stages of a group.
type Limit struct {
	// Group is the group's name. It is empty for all stages of the account.
	Group string
	// Max is the most stages that may be given out: offered to a delegate, or acquired
	// and not released. Used counts them. It exceeds Max after Max was lowered.
	Max, Used int
}

// SetLimit bounds the number of stages of a group ([Work.Groups]) that delegates have at a
// time, from the offer to [Queue.Release]. The empty name is the group of all stages
// of the account. A limit of 0 or less is no bound. A higher limit takes effect at once; a
// lower one withdraws no stage.
func (q *Queue) SetLimit(account, name string, limit int) {
	defer q.unlock(q.lock())
	now, a := q.now(), q.account(account)
	g := a.group(name)
	g.max = max(limit, 0)
	q.dispatch(nil, nil, []*group{g}, now)
	a.dropUnused(g)
}

// Pause begins or ends a pause of an account. A pause withdraws offers, and no delegate gets
// new work. Delegates keep the tasks that they have acquired, and get further tasks of
// their stages. The end of a pause offers the waiting works in their order. The note is part of the reason why they
// wait.
func (q *Queue) Pause(account string, paused bool, note string) {
	defer q.unlock(q.lock())
	now, a := q.now(), q.account(account)
	a.gate.closed, a.gate.note = paused, note
	if !paused {
		a.gate.note = ""
		q.dispatch(nil, nil, []*group{&a.gate}, now)
		return
	}
	for _, d := range a.sorted() {
		q.withdraw(d, now)
	}
}

// Paused reports whether an account is paused, with the note of the pause.
func (q *Queue) Paused(account string) (paused bool, note string) {
	defer q.unlock(q.lock())
	a := q.find(account)
	return a.gate.closed, a.gate.note
}

// Limits returns the limits of an account, in the order of their groups' names.
func (q *Queue) Limits(account string) []Limit {
	defer q.unlock(q.lock())
	return q.find(account).limits()
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

// dropUnused forgets a group without a limit and without requirements.
func (a *account) dropUnused(g *group) {
	if g.requirements == 0 && g.max == 0 {
		delete(a.groups, g.name)
	}
}

// limited reports whether a group of the requirement has a limit.
func (r *requirement) limited() bool {
	return slices.ContainsFunc(r.in, func(g *group) bool { return g.max > 0 })
}

// fullGroup returns a group that blocks the requirement's works, nil when there is
// none.
func (r *requirement) fullGroup() *group {
	for _, g := range r.in {
		if g.full() {
			return g
		}
	}
	return nil
}

// use adds n to the number of stages of the requirement that are given out.
func (r *requirement) use(n int) {
	for _, g := range r.in {
		g.used += n
	}
}

// firstUnblocked returns the first requirement that waits for room in one of the groups
// and has room now, nil when there is none.
func firstUnblocked(groups []*group) *requirement {
	var first waiter
	for _, g := range groups {
		w, ok := g.waiters.first()
		if ok && !g.full() && (first.of == nil || w.before(first)) {
			first = w
		}
	}
	return first.of
}
