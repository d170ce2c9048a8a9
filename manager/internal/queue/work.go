package queue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/delegate-io/dlite/task"
)

// Priority orders works that wait: High before Normal, then the oldest (rule Q2).
type Priority int8

// The priorities. The zero value is Normal.
const (
	Normal Priority = iota
	High
)

// Work is something that waits for a delegate: a stage, which holds one of the
// delegate's slots until it is released, or a single task, which holds no slot.
type Work struct {
	// ID is unique among the works of the account. The ID of a single task is that of
	// its task.
	ID       string
	Stage    bool
	Priority Priority
	// Selectors must all be among the delegate's tags.
	Selectors []string
	// Groups are the groups of a stage besides that of its account, for example
	// "pipeline:web" or "label:env=prod": see [Queue.SetLimit]. A single task has none.
	Groups []string
	// Variants are the ways to do the work, the preferred one first. At least one is
	// required.
	Variants []Variant
	// QueueTimeout bounds the time until the first task is acquired. Then that task
	// ends as [TimedOut]. 0 is no bound.
	QueueTimeout time.Duration
	// NotBefore is the earliest time at which a delegate gets the work. Its wait, and
	// its QueueTimeout, begin then; its age counts from the submission. The zero time
	// is at once.
	NotBefore time.Time
	// RunTimeout is the time between the acquisition of a stage's first task and the
	// stage's [Expired] event. 0 is never.
	RunTimeout time.Duration
}

// Variant is one way to do a work.
type Variant struct {
	// Types are the task types that the delegate must support, all of them.
	Types []string
	// Task is the first task. The tasks of all variants have the same ID. The queue
	// does not copy it, and the caller must not change it any more. Its Timeout bounds
	// its run; 0 is no bound.
	Task *task.Task
}

type workState uint8

const (
	pending workState = iota // it waits for a delegate, or its first task ended while it waited
	later                    // it waits for its time
	given                    // its first task is offered to a delegate
	running                  // its first task has been acquired
	over
)

// work is a Work in the queue. The queue's lock guards it. There may be millions, so
// its size counts (TestWaitingStagesAreSmall), and so does the order of its fields:
// those that a decision needs are together.
type work struct {
	state    workState
	Stage    bool
	Priority Priority
	queued   bool  // it is among the waiting works of its requirement
	variant  int32 // the one that the delegate was given

	requirement *requirement // until the work ends
	delegate    *delegate    // that has the work, nil while it waits
	first       *record
	// due is the end of its wait or of its offer, then of its run, then of its
	// retention.
	due instant

	ID           string
	Variants     []Variant // until the first task has ended
	QueueTimeout time.Duration
	notBefore    instant
	account      *account

	seq        uint64    // of its submission
	Selectors  *[]string // as the caller spelled them
	RunTimeout time.Duration
	more       []*record       // the other tasks
	size       int             // of the answers, in bytes
	was        map[string]fate // of the work at earlier delegates, by their ids
}

// fate is what a delegate did with a work that it no longer has.
type fate int8

const (
	missed  fate = iota + 1 // it did not acquire the work in time, or ran it before a retry
	refused                 // it asked for another delegate
)

// Submit adds a work. The queue offers it at once if an eligible delegate is free,
// otherwise the work waits. Submit fails with [ErrExists] if a work or task of the
// account has the id of the work or of its first task.
func (q *Queue) Submit(account string, w *Work) error {
	if w.ID == "" {
		return errors.New("a work needs an id")
	}
	if err := checkVariants(w.Variants); err != nil {
		return err
	}
	var space [256]byte
	key := w.appendKey(space[:0], nil)
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
	q.addTask(n.first, w.Variants[0].Task, now)
	a.works[n.ID] = n
	q.wait(n, now)
	q.dispatch(n, nil, nil, now)
	return nil
}

func checkVariants(all []Variant) error {
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

// newWork makes a work and its first task in one allocation.
func newWork(w *Work, a *account) *work {
	n := &struct {
		work
		first record
	}{}
	n.work = work{
		ID: w.ID, Stage: w.Stage, Priority: w.Priority, Variants: w.Variants,
		QueueTimeout: w.QueueTimeout, RunTimeout: w.RunTimeout, account: a, first: &n.first,
	}
	n.postpone(w.NotBefore)
	n.first.work = &n.work
	return &n.work
}

// postpone sets the earliest time at which a delegate gets the work.
func (w *work) postpone(t time.Time) {
	if w.notBefore = 0; !t.IsZero() {
		w.notBefore = moment(t)
	}
}

// wait puts a work in its place in the queue, once its time has come. The caller holds
// mu.
func (q *Queue) wait(w *work, now instant) {
	w.delegate = nil
	if w.notBefore > now {
		w.state = later
		q.arm(w, w.notBefore)
		return
	}
	w.state = pending
	w.requirement.enqueue(w)
	q.arm(w, w.queueDeadline())
}

// stopWaiting takes the work out of the works that wait, if it is one.
func (w *work) stopWaiting() {
	if w.queued {
		w.requirement.dequeue(w)
	}
}

// queueDeadline returns when the work has waited for too long.
func (w *work) queueDeadline() instant {
	if w.QueueTimeout <= 0 {
		return never
	}
	return max(w.first.submitted, w.notBefore).after(w.QueueTimeout)
}

func (w *work) deadline() *instant { return &w.due }
func (w *work) age() uint64        { return w.seq }

func (w *work) expire(q *Queue, now instant) {
	switch w.state {
	case pending:
		q.timeOut(w, now)
	case later:
		q.wait(w, now)
		q.dispatch(w, nil, nil, now)
	case given:
		if now >= w.queueDeadline() {
			q.timeOut(w, now)
		} else { // rule Q4: an offer that was not acquired in time
			w.note(w.delegate, missed)
			q.requeue(w, now)
		}
	case running:
		q.emit(Expired, now, w.first)
	case over:
		q.forget(w, now)
		q.compactFinished()
	}
}

// timeOut ends a work that waited for too long. The caller holds mu.
func (q *Queue) timeOut(w *work, now instant) {
	q.end(w.first, now, Result{
		Outcome: TimedOut,
		Error:   fmt.Sprintf("no delegate took it within %s: %s", w.QueueTimeout, q.reason(w)),
	})
}

// note remembers what a delegate did with the work.
func (w *work) note(d *delegate, f fate) {
	if w.was == nil {
		w.was = map[string]fate{}
	}
	w.was[d.info.ID] = f
}

// Release ends a stage: its slot is free for another one. Its tasks must have ended,
// except detached ones. Releasing it again changes nothing. Release fails with
// [ErrUnknownWork].
func (q *Queue) Release(account, id string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	w, err := q.work(account, id)
	if err != nil {
		return err
	}
	if err := w.checkIdle(); err != nil {
		return fmt.Errorf("releasing %s: %w", id, err)
	}
	q.finish(w, q.now())
	return nil
}

// checkIdle returns an error while the work has a task that is not detached and has
// not ended.
func (w *work) checkIdle() error {
	for r := range w.tasks {
		if r.state != done && !r.detached {
			return fmt.Errorf("its task %s has not ended", r.id)
		}
	}
	return nil
}

// finish ends a work and gives its slot and its room in groups away. The caller holds
// mu.
func (q *Queue) finish(w *work, now instant) {
	if w.state == over {
		return
	}
	w.stopWaiting()
	var groups []*group
	if w.Stage && w.delegate != nil {
		groups = w.requirement.groups
		w.requirement.use(-1)
	}
	w.state, w.Variants, w.Selectors = over, nil, nil
	w.account.quit(w.requirement)
	w.requirement = nil
	q.arm(w, now.after(q.cfg.Retention))
	q.finished = append(q.finished, w)
	q.kept++
	q.bytes += w.size
	if d := w.delegate; d != nil {
		delete(d.slots, w.ID)
		d.idleSince = now
		d.touch()
		q.admit(groups, d, nil, now)
		q.fill(d, now)
	}
	q.forgetExcess(now)
}

// forgetExcess forgets the oldest ended works above the limits, but not the last one
// that ended: its caller may ask for its result. The caller holds mu.
func (q *Queue) forgetExcess(now instant) {
	excess := func() bool {
		return q.kept > q.cfg.MaxFinished || q.bytes > q.cfg.MaxFinishedBytes && q.kept > 1
	}
	for n := len(q.finished) - 1; n > 0 && excess(); n-- {
		w := q.finished[0]
		q.finished = q.finished[1:]
		if w.account.works[w.ID] == w && !q.forget(w, now) {
			q.finished = append(q.finished, w) // a cleanup waits for its delegate
		}
	}
	q.compactFinished()
}

// compactFinished drops the forgotten works from the list when they are most of it.
// The caller holds mu.
func (q *Queue) compactFinished() {
	if len(q.finished) > 2*q.kept+16 {
		q.finished = slices.DeleteFunc(q.finished, func(w *work) bool { return w.account.works[w.ID] != w })
	}
}

// forget drops an ended work and its tasks. It keeps a work with a task that has not
// ended, and tries again after another Retention. The caller holds mu.
func (q *Queue) forget(w *work, now instant) bool {
	for r := range w.tasks {
		if r.state != done {
			q.arm(w, now.after(q.cfg.Retention))
			return false
		}
	}
	q.disarm(w)
	q.kept--
	q.bytes -= w.size
	delete(w.account.works, w.ID)
	for r := range w.tasks {
		delete(w.account.tasks, r.id)
		if r.owner != nil {
			delete(r.owner.stops, r.id)
		}
	}
	q.events = append(q.events, Event{Kind: Forgotten, At: now.time(), Account: w.account.id, Work: w.ID})
	return true
}

// tasks yields all tasks of the work, the first one first.
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

func (w *work) before(o *work) bool { return w.turn() < o.turn() }
func (w *work) compare(o *work) int { return cmp.Compare(w.turn(), o.turn()) }
