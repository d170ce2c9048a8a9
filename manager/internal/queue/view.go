package queue

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/task"
)

// List is what a delegate is to know: what it may acquire, and what it is to
// stop.
type List struct {
	// Events are the tasks that wait for the delegate, in the order of their
	// offers.
	Events []task.Event
	// Aborted are the ids of tasks that it has acquired and is to stop, until it
	// has answered them.
	Aborted []string
	// Cursor stands for this list.
	Cursor string
	// Fresh says that there is a change that the cursor in the call has not seen;
	// without a cursor, that there is anything.
	Fresh bool
	// Changed is closed when others change the delegate's list, by an offer, a
	// withdrawal or an abort, and when the delegate is removed. What the delegate
	// acquires and answers is no change.
	Changed <-chan struct{}
}

// List lists what waits for a delegate. Since is the cursor of an earlier list
// of the same delegate or empty; one that is not understood counts as empty. It
// fails with [ErrUnknownDelegate].
func (q *Queue) List(account, delegate, since string) (List, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, err := q.delegate(account, delegate)
	if err != nil {
		return List{}, err
	}
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	prefix := q.epoch + "-" + strconv.FormatUint(d.order, 36) + "-"
	l := List{Cursor: prefix + strconv.FormatUint(d.version, 36), Changed: d.changed}
	for _, r := range d.tasks() {
		if r.state == offered {
			l.Events = append(l.Events, task.Event{
				TaskID: r.id, TaskType: r.body.Type, Account: account, Sync: !r.body.Async, RunnerType: r.body.Driver,
			})
		}
	}
	for id := range d.stops {
		l.Aborted = append(l.Aborted, id)
	}
	slices.Sort(l.Aborted)
	l.Fresh = len(l.Events)+len(l.Aborted) > 0
	if v, ok := strings.CutPrefix(since, prefix); ok {
		if seen, err := strconv.ParseUint(v, 36, 64); err == nil {
			l.Fresh = d.version > seen
		}
	}
	return l, nil
}

// TaskState is what the queue knows about a task.
type TaskState struct {
	// Task must not be changed. Of one that has ended only the ID and the Type
	// are left.
	Task *task.Task
	// Delegate has the task, or had it last; empty while it waits.
	Delegate string
	// The zero times have not come yet.
	Submitted, Offered, Acquired, Ended time.Time
	// Result is the zero value until the end. The Data of a stage's task is in
	// its event alone.
	Result Result
	// Done is closed at the end.
	Done <-chan struct{}
}

// Task finds a task. It fails with [ErrUnknownTask].
func (q *Queue) Task(account, id string) (TaskState, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, err := q.record(account, id)
	if err != nil {
		return TaskState{}, err
	}
	if r.over == nil {
		r.over = make(chan struct{})
		if r.state == done {
			close(r.over)
		}
	}
	s := TaskState{
		Task: r.body, Delegate: r.owner.id(), Done: r.over,
		Submitted: r.submitted.time(), Offered: r.offered.time(), Acquired: r.acquired.time(), Ended: r.ended.time(),
	}
	if r.state == done {
		s.Task, s.Result = &task.Task{ID: r.id, Type: r.end.kind}, r.result()
	}
	return s, nil
}

// Place is where a work stands in the queue (SPEC Q5). The zero value is that of
// a work that does not wait any more.
type Place struct {
	// Number counts the account's waiting works of the same kind, stages or
	// single tasks, from 1. It is 0 for one that is on its way to a delegate
	// or waits for its time.
	Number int
	// Reason says why it waits.
	Reason string
}

// Place tells where a work waits. It fails with [ErrUnknownWork].
func (q *Queue) Place(account, id string) (Place, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w, err := q.work(account, id)
	if err != nil {
		return Place{}, err
	}
	p := Place{Reason: q.why(w)}
	if w.lane == nil {
		return p, nil
	}
	p.Number = 1
	for _, c := range w.acc.classes {
		if c.waiting > 0 && c.kind == w.kind() {
			for n := range c.lanes {
				p.Number += n.ahead(w)
			}
		}
	}
	return p, nil
}

// Places tells where all stages of an account wait, by their ids, in one go.
func (q *Queue) Places(account string) map[string]Place {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := map[string]Place{}
	a := q.accounts[account]
	if a == nil {
		return out
	}
	reasons := map[*lane]string{} // nearly the same for all of a lane: see account.why
	for i, w := range slices.SortedFunc(a.waiting(stages), (*work).compare) {
		if reasons[w.lane] == "" {
			reasons[w.lane] = q.why(w)
		}
		out[w.ID] = Place{Number: i + 1, Reason: reasons[w.lane]}
	}
	for _, w := range a.works {
		if w.Stage && (w.state == later || w.state == given && w.first.state == offered) {
			out[w.ID] = Place{Reason: q.why(w)}
		}
	}
	return out
}

// Waiting is works of an account that wait for a delegate and that need the
// same.
type Waiting struct {
	// Stage tells stages from single tasks.
	Stage bool
	// Selectors are those of the works; not to be changed.
	Selectors []string
	Count     int
	// Since is when the oldest of them was submitted, or put back by a retry.
	Since time.Time
}

// Waiting counts what waits in an account, in no order. What has been offered
// waits no more, and what waits for its time does not wait yet.
func (q *Queue) Waiting(account string) []Waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.accounts[account]
	if a == nil {
		return nil
	}
	out := make([]Waiting, 0, len(a.classes))
	for _, c := range a.classes {
		if c.waiting > 0 {
			first := c.oldest()
			out = append(out, Waiting{
				Stage: first.Stage, Selectors: *first.Selectors, Count: c.waiting, Since: first.first.submitted.time(),
			})
		}
	}
	return out
}

// Ping returns when the queue can be used: when its store answers.
func (q *Queue) Ping(context.Context) error {
	q.mu.Lock() // the store is this memory
	defer q.mu.Unlock()
	return nil
}

// waiting are all works of a kind that wait, in no order.
func (a *account) waiting(k kind) iter.Seq[*work] {
	return func(yield func(*work) bool) {
		for _, c := range a.classes {
			if c.kind != k {
				continue
			}
			for n := range c.lanes {
				for w := range n.works {
					if !yield(w) {
						return
					}
				}
			}
		}
	}
}

// why says what keeps a work waiting. The caller holds mu.
func (q *Queue) why(w *work) string {
	if w.state == given && w.first.state == offered {
		return fmt.Sprintf("waiting for the delegate %q to take it", w.d.label())
	}
	if w.state == later {
		return "it is not to begin before " + w.notBefore.time().Format(time.RFC3339)
	}
	if w.lane == nil {
		return ""
	}
	return w.acc.why(w)
}

// why says it of a work that waits in a lane: the same for all of the lane but for
// how they spell their selectors.
func (a *account) why(w *work) string {
	a.settle()
	c := w.class
	var tagged, able bool
	var t tally
	for crew := range c.line.all { // those that can have one of its tags
		if crew.tagged(c) {
			tagged = true
			if crew.runs(c) {
				able = true
				t.add(crew.tally, 1)
			}
		}
	}
	present := t.takers
	for id, f := range w.was {
		if d := a.delegates[id]; f == refused && d != nil && d.crew.can(c) {
			t.add(d.counted, -1)
		}
	}
	switch {
	case c.acc.gate.closed:
		return c.acc.gate.reason()
	case len(a.delegates) == 0:
		return "no delegate is registered: start one"
	case !tagged:
		return fmt.Sprintf("no delegate has the tags %s: give them to one, or change the selectors", quoted(*w.Selectors))
	case !able:
		return fmt.Sprintf("no delegate with the right tags supports %s: start one that does", w.types())
	case present == 0:
		return "every delegate that could take it is lost or draining: bring one back, or start another"
	case t.takers == 0:
		return "every delegate that could take it has asked for another one: start another"
	case c.full() != nil:
		return c.full().reason()
	case t.takers == 1:
		return fmt.Sprintf("one eligible delegate, at capacity (%s)", plural(t.slots, "slot"))
	default:
		return fmt.Sprintf("%s, all at capacity (%s)", plural(t.takers, "eligible delegate"), plural(t.slots, "slot"))
	}
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
