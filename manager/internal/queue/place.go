package queue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Place is the place of a work in the queue (rule Q5). It is the zero value for a work
// that does not wait.
type Place struct {
	// Number counts the waiting works of the account and of the same kind, stages or
	// single tasks, from 1. It is 0 for a work that is offered to a delegate or that
	// waits for its time.
	Number int
	// Reason explains why the work waits.
	Reason string
}

// Place returns the place of a work. It fails with [ErrUnknownWork].
func (q *Queue) Place(account, id string) (Place, error) {
	defer q.unlock(q.lock())
	w, err := q.work(account, id)
	if err != nil {
		return Place{}, err
	}
	p := Place{Reason: w.reason()}
	if !w.queued {
		return p, nil
	}
	p.Number = 1
	for _, r := range w.account.requirements {
		if r.kind == w.requirement.kind {
			p.Number += r.works.rank(waiting{turn: w.turn()})
		}
	}
	return p, nil
}

// Places returns the places of all stages of an account that wait, by their ids.
func (q *Queue) Places(account string) map[string]Place {
	defer q.unlock(q.lock())
	a := q.find(account)
	var queued []*work
	for _, r := range a.requirements {
		for w := range r.works.all() {
			if r.kind == stages {
				queued = append(queued, w.of)
			}
		}
	}
	slices.SortFunc(queued, (*work).compare)
	out := map[string]Place{}
	for i, w := range queued {
		out[w.ID] = Place{Number: i + 1, Reason: w.reason()}
	}
	for _, w := range a.works {
		if w.Stage && (w.State == later || w.State == given && w.first.State == offered) {
			out[w.ID] = Place{Reason: w.reason()}
		}
	}
	return out
}

// Waiting counts works of an account that wait for a delegate and have the same needs.
type Waiting struct {
	// Stage distinguishes stages from single tasks.
	Stage bool
	// Selectors are the selectors of the works. The caller must not change them.
	Selectors []string
	Count     int
	// Since is when the oldest of the works was submitted, or put back by a retry.
	Since time.Time
	// Reason is the reason of each of the works, and Detail counts the delegates by the reason
	// why they do not take the works. Only [Queue.Needs] sets them.
	Reason, Detail string
}

// Waiting counts the works that wait in an account, in no order. Works that are offered
// or that wait for their time are not among them.
func (q *Queue) Waiting(account string) []Waiting {
	defer q.unlock(q.lock())
	var out []Waiting
	for _, r := range q.find(account).requirements {
		if r.list != nil {
			out = append(out, r.waiting())
		}
	}
	return out
}

func (r *requirement) waiting() Waiting {
	oldest := r.oldest()
	return Waiting{
		Stage: oldest.Stage, Selectors: oldest.Selectors, Count: r.works.size, Since: oldest.first.Submitted.time(),
	}
}

// reason returns why a work waits. It is empty for a work that does not wait.
func (w *work) reason() string {
	switch {
	case w.State == given && w.first.State == offered:
		return fmt.Sprintf("waiting for the delegate %q to take it", w.delegate.label())
	case w.State == later:
		return "it is not to begin before " + w.NotBefore.time().Format(time.RFC3339)
	case !w.queued:
		return ""
	}
	a, r := w.account, w.requirement
	switch full, n := r.fullGroup(), r.count(); {
	case a.gate.closed:
		return a.gate.reason()
	case len(a.delegates) == 0:
		return "no delegate is registered: start one"
	case n.upTo[unsupported] == 0:
		return fmt.Sprintf("no delegate has the tags %s: give them to one, or change the selectors", quoted(w.Selectors))
	case n.upTo[absent] == 0:
		return fmt.Sprintf("no delegate with the right tags supports %s: start one that does", r.ways())
	case n.upTo[unwilling] == 0:
		return "every delegate that could take it is lost or draining: bring one back, or start another"
	case n.upTo[eligible] == 0:
		return "every delegate that could take it has asked for another one: start another"
	case full != nil:
		return full.reason()
	case n.upTo[eligible] == 1:
		return fmt.Sprintf("one eligible delegate, at capacity (%s)", plural(n.slots, "slot"))
	default:
		return fmt.Sprintf("%s, all at capacity (%s)", plural(n.upTo[eligible], "eligible delegate"), plural(n.slots, "slot"))
	}
}

// fitness is the first condition of rule Q3 that a delegate does not meet for a requirement.
type fitness int

const (
	untagged    fitness = iota // it lacks a selector
	unsupported                // it does not support the types of any variant
	absent                     // it is lost or draining
	unwilling                  // it has refused the works
	eligible                   // it meets all conditions
	lost                       // for requirement.detail, which tells lost delegates from draining ones
)

func (d *delegate) fitness(r *requirement) fitness {
	switch {
	case !d.hasAll(r.selectors, ""):
		return untagged
	case d.variant(r) < 0:
		return unsupported
	case !d.takesWork():
		return absent
	case slices.Contains(r.refused, d.info.ID):
		return unwilling
	}
	return eligible
}

// counts are numbers of delegates of which some could take the works of a requirement.
type counts struct {
	version uint64            // of the account, when the delegates were counted
	upTo    [eligible + 1]int // by fitness, those that meet all conditions before it
	slots   int               // of the eligible ones
}

// count counts the delegates for the requirement. It counts again only after a change of
// the work that a delegate is able to take, since many works may time out at once.
func (r *requirement) count() counts {
	if r.counted.version == r.account.version {
		return r.counted
	}
	n := counts{version: r.account.version}
	for d := range r.account.holders(r.account.rarest(r.selectors)) {
		fit := d.fitness(r)
		for i := range fit + 1 {
			n.upTo[i]++
		}
		if fit == eligible {
			n.slots += d.Max
		}
	}
	r.counted = n
	return n
}

// ways lists the task types of the requirement.
func (r *requirement) ways() string {
	var ways []string
	for _, types := range r.types {
		ways = append(ways, strings.Join(types, ", "))
	}
	return strings.Join(ways, "; or ")
}

func quoted(names []string) string {
	var out []string
	for _, n := range names {
		out = append(out, strconv.Quote(n))
	}
	return strings.Join(out, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "one " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
