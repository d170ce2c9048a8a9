package queue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/delegate-io/dlite/task"
)

// Priority orders what waits: High before Normal, then by age (SPEC Q2).
type Priority int8

// The priorities. The zero value is Normal.
const (
	Normal Priority = iota
	High
)

// Work is what waits for a delegate: a stage, which holds one of the delegate's
// slots until it is released, or a single task, which holds none.
type Work struct {
	// ID is unique among the account's works. A single task's is that of its task.
	ID       string
	Stage    bool
	Priority Priority
	// Selectors must all be among the delegate's tags.
	Selectors []string
	// Groups are those to which a stage belongs, besides that of all stages of its
	// account, like "pipeline:web" or "label:env=prod": see [Queue.SetLimit]. A
	// single task belongs to none.
	Groups []string
	// Variants are the ways to do it, the preferred first; at least one.
	Variants []Variant
	// QueueTimeout bounds the time until the first task is acquired; 0 is no
	// bound. Then the first task ends as [TimedOut].
	QueueTimeout time.Duration
	// NotBefore is when it may be given to a delegate first; it counts as waiting
	// from then, also for QueueTimeout, and keeps its age. The zero value is at once.
	NotBefore time.Time
	// RunTimeout is how long after that a stage's [Expired] event comes; 0 is
	// never.
	RunTimeout time.Duration
}

// Variant is one way to do a work.
type Variant struct {
	// Types are the task types that the delegate must support, all of them.
	Types []string
	// Task is the first task. All variants' tasks have the same ID. It is not
	// copied and must not be changed any more; its Timeout bounds its run, 0 is
	// no bound.
	Task *task.Task
}

type workState uint8

const (
	waiting workState = iota
	later             // it waits for its time, and then for a delegate
	given             // its first task is offered to a delegate
	running           // its first task has been acquired
	over
)

// work is a Work in the queue. The queue's lock guards it. There may be millions:
// mind what a field takes (TestWaitingStagesAreSmall), and that what one decision
// needs lies together, since hardly any of it is in the processor's cache.
type work struct {
	state    workState
	Stage    bool
	Priority Priority
	variant  int32 // that d was given

	lane  *lane     // while it waits
	index int       // in the lane
	class *class    // until it ends
	d     *delegate // that has it, nil while it waits
	first *record
	// timer is the end of its wait or of its offer, then of its run, then of its
	// retention.
	timer timer

	ID           string
	Variants     []Variant // until the first task has ended
	QueueTimeout time.Duration
	notBefore    instant
	acc          *account

	seq        uint64    // its place among its priority, for good
	Selectors  *[]string // as they were spelled
	RunTimeout time.Duration
	more       []*record       // its other tasks
	size       int             // bytes in the answers
	was        map[string]fate // with delegates that have it no more, by their ids
}

// fate is what became of a work at a delegate.
type fate int8

const (
	missed  fate = iota + 1 // it did not acquire it in time
	refused                 // it asked for another delegate
)

// Submit adds a work. It is offered at once when an eligible delegate is free,
// otherwise it waits. It fails with [ErrExists] when a work or task of the
// account has its id or its task's.
func (q *Queue) Submit(account string, w *Work) error {
	if w.ID == "" {
		return errors.New("a work needs an id")
	}
	if err := check(w.Variants); err != nil {
		return err
	}
	var space [256]byte
	key := w.needs(space[:0])
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.account(account)
	id := w.Variants[0].Task.ID
	if a.works[w.ID] != nil || a.tasks[id] != nil {
		return fmt.Errorf("%s: %w", w.ID, ErrExists)
	}
	now := q.now()
	n := newWork(w, a)
	n.seq = q.number()
	a.join(n, w, key)
	q.enlist(n.first, w.Variants[0].Task, now)
	a.works[n.ID] = n
	q.wait(n, now)
	q.again(n, nil, nil, now)
	return nil
}

// check finds what is wrong with the variants of a work.
func check(all []Variant) error {
	if len(all) == 0 {
		return errors.New("a work needs a variant")
	}
	for _, v := range all {
		if v.Task == nil || v.Task.ID == "" || v.Task.ID != all[0].Task.ID {
			return errors.New("all variants of a work need one task with one id")
		}
	}
	return nil
}

// Release ends a stage: its slot is free for the next one. Its tasks must have
// ended, except detached ones. Releasing it again changes nothing. It fails
// with [ErrUnknownWork].
func (q *Queue) Release(account, id string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	w, err := q.work(account, id)
	if err != nil {
		return err
	}
	if err := w.idle(); err != nil {
		return fmt.Errorf("releasing %s: %w", id, err)
	}
	q.finish(w, q.now())
	return nil
}

// idle fails while the work has a task that has not ended and is not detached.
func (w *work) idle() error {
	for r := range w.tasks {
		if r.state != done && !r.detached {
			return fmt.Errorf("its task %s has not ended", r.id)
		}
	}
	return nil
}

// finish ends a work and gives its slot away. The caller holds mu.
func (q *Queue) finish(w *work, now instant) {
	if w.state == over {
		return
	}
	q.unwait(w)
	var groups []*group
	if w.Stage && w.d != nil {
		groups = w.class.groups
		w.class.count(-1)
	}
	w.state, w.Variants, w.Selectors = over, nil, nil
	w.acc.quit(w.class)
	w.class = nil
	q.retain(w, now)
	q.finished = append(q.finished, w)
	q.kept++
	q.bytes += w.size
	if d := w.d; d != nil {
		delete(d.slots, w.ID)
		d.idleSince = now
		d.touch()
		q.admit(groups, d, nil, now)
		q.fill(d, now)
	}
	q.trim(now)
}

// keep notes that a work has an answer of so many bytes. The caller holds mu.
func (q *Queue) keep(w *work, size int) {
	w.size += size
	if w.state == over {
		q.bytes += size
	}
}

// trim forgets the oldest ended works above the limits, but not the last one of the
// list: who has just ended something asks what became of it. The caller holds mu.
func (q *Queue) trim(now instant) {
	tooMuch := func() bool {
		return q.kept > q.cfg.MaxFinished || q.bytes > q.cfg.MaxFinishedBytes && q.kept > 1
	}
	for n := len(q.finished) - 1; n > 0 && tooMuch(); n-- {
		w := q.finished[0]
		q.finished = q.finished[1:]
		if w.acc.works[w.ID] == w && !q.forget(w, now) {
			q.finished = append(q.finished, w) // a cleanup waits for its delegate
		}
	}
	q.compact()
}

// compact drops the forgotten works from the list once they are many. The caller
// holds mu.
func (q *Queue) compact() {
	if len(q.finished) > 2*q.kept+16 {
		q.finished = slices.DeleteFunc(q.finished, func(w *work) bool { return w.acc.works[w.ID] != w })
	}
}

// retain sets when an ended work is forgotten. The caller holds mu.
func (q *Queue) retain(w *work, now instant) {
	q.arm(w, now.after(q.cfg.Retention))
}

// forget drops an ended work and its tasks, unless one is still open: then it
// tries again later. The caller holds mu.
func (q *Queue) forget(w *work, now instant) bool {
	for r := range w.tasks {
		if r.state != done {
			q.retain(w, now)
			return false
		}
	}
	q.disarm(w)
	q.kept--
	q.bytes -= w.size
	delete(w.acc.works, w.ID)
	for r := range w.tasks {
		delete(w.acc.tasks, r.id)
		if r.owner != nil {
			delete(r.owner.stops, r.id)
		}
	}
	q.events = append(q.events, Event{Kind: Forgotten, At: now.time(), Account: w.acc.id, Work: w.ID})
	return true
}

// compare orders works as they are to be given away.
func (w *work) compare(o *work) int {
	return cmp.Or(cmp.Compare(o.Priority, w.Priority), cmp.Compare(w.seq, o.seq))
}

func (w *work) before(o *work) bool { return w.compare(o) < 0 }
func (w *work) place() *int         { return &w.index }
func (w *work) kind() kind          { return kindOf(w.Stage) }

// newWork makes a work and its first task in one piece.
func newWork(w *Work, a *account) *work {
	n := &struct {
		work
		first record
	}{}
	n.work = work{
		ID: w.ID, Stage: w.Stage, Priority: w.Priority, Variants: w.Variants,
		QueueTimeout: w.QueueTimeout, RunTimeout: w.RunTimeout, acc: a, first: &n.first,
	}
	n.postpone(w.NotBefore)
	n.first.work = &n.work
	return &n.work
}

// postpone sets when the work may be given away.
func (w *work) postpone(t time.Time) {
	if w.notBefore = 0; !t.IsZero() {
		w.notBefore = moment(t)
	}
}

// tasks are all of the work's, the first one first.
func (w *work) tasks(yield func(*record) bool) {
	if !yield(w.first) {
		return
	}
	for _, r := range w.more {
		if !yield(r) {
			return
		}
	}
}

// until is when the work has waited for too long.
func (w *work) until() instant {
	if w.QueueTimeout <= 0 {
		return never
	}
	return max(w.first.submitted, w.notBefore).after(w.QueueTimeout)
}

// wait puts a work, back, in its place, once its time has come. The caller holds mu.
func (q *Queue) wait(w *work, now instant) {
	w.d = nil
	if w.notBefore > now {
		w.state = later
		q.arm(w, w.notBefore)
		return
	}
	w.state = waiting
	w.class.enter(w)
	q.arm(w, w.until())
}

// unwait takes a work out of what waits, if it does. The caller holds mu.
func (q *Queue) unwait(w *work) {
	if w.lane != nil {
		w.lane.take(w)
	}
}

func (w *work) clock() *timer { return &w.timer }
func (w *work) age() uint64   { return w.seq }

// due does what the work's state says is due.
func (w *work) due(q *Queue, now instant) {
	switch w.state {
	case waiting:
		q.late(w, now)
	case later:
		q.wait(w, now)
		q.again(w, nil, nil, now)
	case given:
		if now >= w.until() {
			q.late(w, now)
		} else {
			q.miss(w, now)
		}
	case running:
		q.emit(Expired, now, w.first)
	case over:
		q.forget(w, now)
		q.compact()
	}
}

// late ends a work that nobody took in time. The caller holds mu.
func (q *Queue) late(w *work, now instant) {
	q.end(w.first, now, Result{
		Outcome: TimedOut,
		Error:   fmt.Sprintf("no delegate took it within %s: %s", w.QueueTimeout, q.why(w)),
	})
}
