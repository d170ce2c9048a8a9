package queue

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Place is where a work waits in the queue (rule Q5). It is the zero value for a work
// that does not wait.
type Place struct {
	// Number counts the waiting works of the account and of the same kind, stages or
	// single tasks, from 1. It is 0 for a work that is offered to a delegate or that
	// waits for its time.
	Number int
	// Reason explains why the work waits.
	Reason string
}

// Place returns where a work waits. It fails with [ErrUnknownWork].
func (q *Queue) Place(account, id string) (Place, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w, err := q.work(account, id)
	if err != nil {
		return Place{}, err
	}
	p := Place{Reason: q.reason(w)}
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
	q.mu.Lock()
	defer q.mu.Unlock()
	out := map[string]Place{}
	a := q.accounts[account]
	if a == nil {
		return out
	}
	reasons := map[*[]string]string{} // by the spelling that works of a requirement share
	for i, w := range slices.SortedFunc(a.waiting(stages), (*work).compare) {
		if reasons[w.Selectors] == "" {
			reasons[w.Selectors] = q.reason(w)
		}
		out[w.ID] = Place{Number: i + 1, Reason: reasons[w.Selectors]}
	}
	for _, w := range a.works {
		if w.Stage && (w.state == later || w.state == given && w.first.state == offered) {
			out[w.ID] = Place{Reason: q.reason(w)}
		}
	}
	return out
}

// Waiting is works of an account that wait for a delegate and need the same.
type Waiting struct {
	// Stage distinguishes stages from single tasks.
	Stage bool
	// Selectors are those of the works. The caller must not change them.
	Selectors []string
	Count     int
	// Since is when the oldest of the works was submitted, or put back by a retry.
	Since time.Time
}

// Waiting counts the works that wait in an account, in no order. Works that are offered
// or that wait for their time are not among them.
func (q *Queue) Waiting(account string) []Waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.accounts[account]
	if a == nil {
		return nil
	}
	out := make([]Waiting, 0, len(a.requirements))
	for _, r := range a.requirements {
		if n := r.works.size(); n > 0 {
			oldest := r.oldest()
			out = append(out, Waiting{
				Stage: oldest.Stage, Selectors: *oldest.Selectors, Count: n, Since: oldest.first.submitted.time(),
			})
		}
	}
	return out
}

// oldest returns the oldest work that waits: the first one of either priority.
func (r *requirement) oldest() *work {
	oldest := r.first()
	if c, i := r.works.find(waiting{turn: 1 << 63}); c < len(r.works.chunks) {
		if normal := r.works.chunks[c].elements[i].work; normal.seq < oldest.seq {
			oldest = normal
		}
	}
	return oldest
}

// waiting yields the works of a kind that wait, in no order.
func (a *account) waiting(k kind) iter.Seq[*work] {
	return func(yield func(*work) bool) {
		for _, r := range a.requirements {
			if r.kind != k {
				continue
			}
			for w := range r.works.all() {
				if !yield(w.work) {
					return
				}
			}
		}
	}
}

// reason explains what keeps a work waiting. It is empty for a work that does not wait.
// The caller holds mu.
func (q *Queue) reason(w *work) string {
	switch {
	case w.state == given && w.first.state == offered:
		return fmt.Sprintf("waiting for the delegate %q to take it", w.delegate.label())
	case w.state == later:
		return "it is not to begin before " + w.notBefore.time().Format(time.RFC3339)
	case !w.queued:
		return ""
	}
	a, r := w.account, w.requirement
	n := r.count()
	switch full := r.fullGroup(); {
	case a.gate.closed:
		return a.gate.reason()
	case len(a.delegates) == 0:
		return "no delegate is registered: start one"
	case n.tagged == 0:
		return fmt.Sprintf("no delegate has the tags %s: give them to one, or change the selectors", quoted(*w.Selectors))
	case n.able == 0:
		return fmt.Sprintf("no delegate with the right tags supports %s: start one that does", w.types())
	case n.present == 0:
		return "every delegate that could take it is lost or draining: bring one back, or start another"
	case n.willing == 0:
		return "every delegate that could take it has asked for another one: start another"
	case full != nil:
		return full.reason()
	case n.willing == 1:
		return fmt.Sprintf("one eligible delegate, at capacity (%s)", plural(n.slots, "slot"))
	default:
		return fmt.Sprintf("%s, all at capacity (%s)", plural(n.willing, "eligible delegate"), plural(n.slots, "slot"))
	}
}

// counts are the delegates that could take the works of a requirement. Each number
// leaves out some delegates of the previous one.
type counts struct {
	version uint64 // of the account, when the delegates were counted
	tagged  int    // they have the tags
	able    int    // they support the types
	present int    // they take new works
	willing int    // they have not refused the works
	slots   int    // of the willing ones
}

// count counts the delegates for the requirement. It counts again only after a delegate
// of the account has changed what it is able to take.
func (r *requirement) count() counts {
	if r.counted.version == r.account.version {
		return r.counted
	}
	n := counts{version: r.account.version}
	for d := range r.shard.tag.holders {
		if !d.hasTags(r) {
			continue
		}
		n.tagged++
		if !d.supports(r) {
			continue
		}
		n.able++
		if !d.takesWork() {
			continue
		}
		n.present++
		if slices.Contains(r.refused, d.info.ID) {
			continue
		}
		n.willing++
		n.slots += d.max
	}
	r.counted = n
	return n
}

func (w *work) types() string {
	ways := make([]string, 0, len(w.Variants))
	for _, v := range w.Variants {
		ways = append(ways, strings.Join(v.Types, ", "))
	}
	return strings.Join(ways, "; or ")
}

func quoted(names []string) string {
	out := make([]string, 0, len(names))
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
