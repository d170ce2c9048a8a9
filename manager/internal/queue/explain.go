package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Needs returns what the waiting stages of an account need and why they wait, the needs of the next stage first.
// It returns at most so many, because it looks at each delegate for each of them.
func (q *Queue) Needs(account string, most int) []Waiting {
	defer q.unlock(q.lock())
	a := q.find(account)
	waits := a.waitingStages(func(*requirement) bool { return true })
	sortByTurn(waits)
	var out []Waiting
	for _, r := range waits[:min(most, len(waits))] {
		n := r.waiting()
		n.Selectors, n.Reason, n.Detail = r.first().Selectors, r.first().reason(), r.detail(a.sorted())
		out = append(out, n)
	}
	return out
}

// waitingStages returns the requirements that fit and of which stages wait, in any order.
func (a *account) waitingStages(fits func(*requirement) bool) []*requirement {
	var out []*requirement
	for _, r := range a.requirements {
		if r.kind == stages && r.list != nil && fits(r) {
			out = append(out, r)
		}
	}
	return out
}

func sortByTurn(all []*requirement) {
	slices.SortFunc(all, func(x, y *requirement) int { return cmp.Compare(x.turn, y.turn) })
}

// oldest returns the work that waits longest. Works of a high priority stand before it.
func (r *requirement) oldest() *work {
	oldest := r.first()
	if c, i := r.works.find(waiting{turn: 1 << 63}); c < len(r.works.chunks) { // the first one of the normal priority
		if normal := r.works.chunks[c][i].of; normal.Seq < oldest.Seq {
			oldest = normal
		}
	}
	return oldest
}

// obstacles are the reasons why delegates do not take works, for one delegate and for more.
var obstacles = []struct {
	of        fitness
	one, more string
}{
	{unsupported, "does not support its tasks", "do not support its tasks"},
	{absent, "is draining", "are draining"},
	{lost, "is lost", "are lost"},
	{unwilling, "has asked for another delegate", "have asked for another delegate"},
}

// detail counts the delegates by the reason why they do not take the works of the requirement.
func (r *requirement) detail(delegates []*delegate) string {
	const named = 5
	without, unfit, full := map[string]int{}, map[fitness]int{}, []string{}
	for _, d := range delegates {
		fit := d.fitness(r)
		if d.Lost {
			fit = lost
		}
		unfit[fit]++
		switch {
		case fit == untagged:
			for _, s := range r.selectors {
				if !d.has[s] {
					without[s]++
				}
			}
		case fit == eligible && d.free() <= 0:
			full = append(full, d.label())
		}
	}
	var parts []string
	for _, s := range r.selectors {
		if n := without[s]; n > 0 {
			present := plural(len(delegates)-unfit[lost], "delegate")
			parts = append(parts, fmt.Sprintf("needs tag %s: %d of %s %s it", s, n, present, verb(n, "lacks", "lack")))
		}
	}
	for _, o := range obstacles {
		if n := unfit[o.of]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, verb(n, o.one, o.more)))
		}
	}
	if n := len(full); n > 0 {
		names := strings.Join(full[:min(n, named)], ", ")
		if n > named {
			names += ", ..."
		}
		parts = append(parts, fmt.Sprintf("%d %s full (%s)", n, verb(n, "is", "are"), names))
	}
	return strings.Join(parts, ", ")
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
