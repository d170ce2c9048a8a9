package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Need is what stages that wait for the same reason need, and why the delegates of the account do not take them.
type Need struct {
	// Selectors are the selectors of the stages. The caller must not change them.
	Selectors []string
	Count     int
	// Since is when the oldest of the stages was submitted, or put back by a retry.
	Since time.Time
	// Reason is the reason of each of the stages.
	Reason string
	// Detail counts the delegates by the reason why they do not take the stages, and names those that are full.
	Detail string
}

// Needs returns what the waiting stages of an account need, the needs of the next stage first. It returns at most
// so many, because it looks at each delegate for each of them.
func (q *Queue) Needs(account string, most int) []Need {
	defer q.unlock(q.lock())
	a := q.find(account)
	var waiting []*requirement
	for _, r := range a.requirements {
		if r.kind == stages && r.list != nil {
			waiting = append(waiting, r)
		}
	}
	slices.SortFunc(waiting, func(x, y *requirement) int { return cmp.Compare(x.turn, y.turn) })
	var delegates []*delegate
	if len(waiting) > 0 {
		delegates = a.sorted()
	}
	var out []Need
	for _, r := range waiting[:min(most, len(waiting))] {
		next := r.first()
		out = append(out, Need{
			Selectors: next.Selectors, Count: r.works.size, Since: r.oldest().first.Submitted.time(), Reason: next.reason(), Detail: r.detail(delegates),
		})
	}
	return out
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

// detail counts the delegates by the reason why they do not take the works of the requirement.
func (r *requirement) detail(delegates []*delegate) string {
	const named = 5
	present, without, unable, draining, lost, unwilling, full := 0, map[string]int{}, 0, 0, 0, 0, []string{}
	for _, d := range delegates {
		if d.Lost {
			lost++
			continue
		}
		present++
		switch {
		case !d.hasAll(r.selectors, ""):
			for _, s := range r.selectors {
				if !d.has[s] {
					without[s]++
				}
			}
		case d.variant(r) < 0:
			unable++
		case !d.takesWork():
			draining++
		case slices.Contains(r.refused, d.info.ID):
			unwilling++
		case d.free() <= 0:
			full = append(full, d.label())
		}
	}
	var parts []string
	for _, s := range r.selectors {
		if n := without[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("needs tag %s: %d of %s %s it", s, n, plural(present, "delegate"), verb(n, "lacks", "lack")))
		}
	}
	add := func(n int, one, many string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, verb(n, one, many)))
		}
	}
	add(unable, "does not support its tasks", "do not support its tasks")
	add(draining, "is draining", "are draining")
	add(lost, "is lost", "are lost")
	add(unwilling, "has asked for another delegate", "have asked for another delegate")
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
