package queue

import (
	"slices"
	"strings"
)

// Kind describes delegates that are alike, and stages that they could take.
type Kind struct {
	// Tags are the tags of the delegates: they take the stages whose selectors are all among them. Nil means all stages.
	Tags []string
	// Types are sets of task types, of which the delegates support one. Nil means all types.
	Types [][]string
	// Groups are groups ([Work.Groups]) that the stages are all in.
	Groups []string
	// Delegate is the id of one delegate, whose tags and types replace the others. Empty means none.
	Delegate string
}

// Demand counts stages.
type Demand struct {
	// Waiting counts the stages that delegates of the kind could take now if there were enough of them: stages that
	// wait for a limit or for the end of a pause are not among them.
	Waiting int
	// Running counts the stages of the delegates of the kind that are neither lost nor draining, with those that are
	// offered to one.
	Running int
}

// Demand counts the stages of an account that delegates of a kind could take, and those that they have. With an unknown
// delegate it fails with [ErrUnknownDelegate].
func (q *Queue) Demand(account string, k Kind) (Demand, error) {
	defer q.unlock(q.lock())
	a := q.find(account)
	if k.Delegate != "" {
		d, err := q.delegate(account, k.Delegate)
		if err != nil {
			return Demand{}, err
		}
		return Demand{Waiting: sum(a.takeable(d.couldTake)), Running: len(d.slots)}, nil
	}
	tags := foldAll(k.Tags)
	of := Demand{Waiting: sum(a.takeable(func(r *requirement) bool {
		return k.matches(r) && (k.Tags == nil || all(r.selectors, func(s string) bool { return tags[s] }))
	}))}
	for _, d := range a.delegates {
		if !d.takesWork() || !all(k.Tags, func(tag string) bool { return fold(tag) == "" || d.has[fold(tag)] }) {
			continue
		}
		for _, w := range d.slots {
			if k.matches(w.requirement) {
				of.Running++
			}
		}
	}
	return of, nil
}

// couldTake reports whether the delegate has the tags and the task types that the works of a requirement need.
func (d *delegate) couldTake(r *requirement) bool { return d.fitness(r) > unsupported }

// matches reports whether the works of a requirement have the types and groups of the kind.
func (k *Kind) matches(r *requirement) bool {
	types := k.Types == nil || slices.ContainsFunc(r.types, func(types []string) bool {
		return slices.ContainsFunc(k.Types, func(known []string) bool { return containsAll(known, types) })
	})
	return types && containsAll(r.groups, k.Groups)
}

// maxWaitingGroups is the largest number of groups that [Queue.WaitingByGroup] counts.
const maxWaitingGroups = 100

// WaitingByGroup counts the stages with one of the sets of task types that a delegate could take, by the rest of the name of
// their group with a prefix, and "" for those without one. It counts at most 100 groups, and returns nil if the delegate is
// unknown or does not name one of the sets among its task types.
func (q *Queue) WaitingByGroup(account, delegate, prefix string, types [][]string) map[string]int {
	defer q.unlock(q.lock())
	d, err := q.delegate(account, delegate)
	if err != nil || len(d.info.Types) == 0 || !slices.ContainsFunc(types, d.supports) {
		return nil
	}
	k, out := Kind{Types: types}, map[string]int{}
	for r, n := range d.account.takeable(func(r *requirement) bool { return k.matches(r) && d.couldTake(r) }) {
		name := ""
		for _, g := range r.groups {
			if rest, ok := strings.CutPrefix(g, prefix); ok {
				name = rest
			}
		}
		if _, known := out[name]; n > 0 && (known || len(out) < maxWaitingGroups) {
			out[name] += n
		}
	}
	return out
}

// takeable returns the requirements that fit, each with the number of its waiting stages for which its groups have room.
// The stages that are first in the queue use the room first.
func (a *account) takeable(fits func(*requirement) bool) map[*requirement]int {
	out, used := map[*requirement]int{}, map[*group]int{}
	waiting := a.waitingStages(fits)
	if slices.ContainsFunc(waiting, (*requirement).limited) { // heartbeats of delegates with machines need no order otherwise
		sortByTurn(waiting)
	}
	for _, r := range waiting {
		n := r.works.size
		for _, g := range r.in {
			n = min(n, g.room()-used[g])
		}
		for _, g := range r.in {
			used[g] += n
		}
		out[r] = n
	}
	return out
}

func sum(counts map[*requirement]int) (n int) {
	for _, one := range counts {
		n += one
	}
	return n
}

// all reports whether all names have the property.
func all(names []string, has func(string) bool) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !has(name) })
}

func containsAll(names, wanted []string) bool {
	return all(wanted, func(name string) bool { return slices.Contains(names, name) })
}

// foldAll returns the set of the folded names.
func foldAll(names []string) map[string]bool {
	out := map[string]bool{}
	for _, name := range names {
		out[fold(name)] = true
	}
	return out
}
