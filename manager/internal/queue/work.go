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

// Work is a stage, which holds one slot of its delegate until it is released, or a single
// task, which holds no slot. The queue keeps the lists of the Work: the caller must not
// change them any more.
type Work struct {
	// ID is unique among the works of the account. A single task has the same ID as its
	// task.
	ID       string
	Stage    bool
	Priority Priority
	// Selectors must all be among the delegate's tags.
	Selectors []string
	// Groups are the groups of a stage besides the group of its account, for example
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
	// Lease is the longest time without a call of [Queue.Renew]. At its end the stage has
	// a [LeaseEnded] event. 0 is a stage without a lease.
	Lease time.Duration
	// Size is the memory that the caller and the queue need for the work after its end,
	// without answers, in bytes: see [Config].
	Size int
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

// work is a Work in the queue. There may be millions, so its size counts
// (TestWaitingStagesAreSmall).
type work struct {
	workFacts
	account     *account
	requirement *requirement // until the work ends
	delegate    *delegate    // that has the work, nil while it waits
	queued      bool         // it is among the waiting works of its requirement
	Variants    []Variant    // until the first task has ended
	first       *record
	more        []*record // the other tasks
}

// workFacts are the parts of a work that are saved as they are.
type workFacts struct {
	ID           string          `json:"id"`
	Seq          uint64          `json:"seq"` // of its submission
	Stage        bool            `json:"stage,omitempty"`
	Priority     Priority        `json:"priority,omitempty"`
	State        workState       `json:"state,omitempty"`
	Variant      int32           `json:"variant,omitempty"` // the index of the variant that the delegate got
	Selectors    []string        `json:"selectors"`         // as the caller spelled them, until the work ends
	QueueTimeout time.Duration   `json:"queue,omitempty"`
	RunTimeout   time.Duration   `json:"run,omitempty"`
	NotBefore    instant         `json:"notBefore,omitempty"`
	Due          instant         `json:"due,omitempty"`   // the end of its wait or of its offer, then of its run, then of its retention
	Size         int             `json:"size,omitempty"`  // with the answers, in bytes
	Ended        int             `json:"ended,omitempty"` // the order in which works ended, from 1
	Was          map[string]fate `json:"was,omitempty"`   // at earlier delegates, by their ids
	Lease        *lease          `json:"lease,omitempty"` // until it ends
}

// fate is the reason why a delegate no longer has a work.
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
	asks := needOf(w) // a work may have many selectors: before the lock
	key := asks.key()
	defer q.unlock(q.lock())
	a := q.account(account)
	id := w.Variants[0].Task.ID
	if a.works[w.ID] != nil || a.tasks[id] != nil {
		return fmt.Errorf("%s: %w", w.ID, ErrExists)
	}
	now := q.now()
	n := newWork(workFacts{
		ID: w.ID, Seq: q.number(), Stage: w.Stage, Priority: w.Priority, Selectors: w.Selectors,
		QueueTimeout: w.QueueTimeout, RunTimeout: w.RunTimeout, Size: w.Size,
	}, a)
	n.Variants = w.Variants
	if w.Lease > 0 {
		n.Lease = &lease{Time: w.Lease, Seq: q.number(), work: n}
		q.arm(n.Lease, now.after(w.Lease))
	}
	n.postpone(w.NotBefore)
	a.join(n, asks, key)
	q.addTask(n.first, w.Variants[0].Task, now)
	a.works[n.ID] = n
	q.wait(n, now)
	if n.queued {
		q.assign(n, nil, now)
	}
	return nil
}

func checkVariants(all []Variant) error {
	bad := func(v Variant) bool { return v.Task == nil || v.Task.ID == "" || v.Task.ID != all[0].Task.ID }
	if len(all) == 0 || slices.ContainsFunc(all, bad) {
		return errors.New("a work needs variants, all with one task id")
	}
	return nil
}

// newWork makes a work and its first task in one allocation.
func newWork(facts workFacts, a *account) *work {
	n := &struct {
		work
		first record
	}{}
	n.work = work{workFacts: facts, account: a, first: &n.first}
	n.first.work = &n.work
	return &n.work
}

// postpone sets the earliest time at which a delegate gets the work.
func (w *work) postpone(t time.Time) {
	if w.NotBefore = 0; !t.IsZero() {
		w.NotBefore = moment(t)
	}
}

// wait puts a work in its place in the queue, or waits until its NotBefore.
func (q *Queue) wait(w *work, now instant) {
	w.delegate = nil
	if w.NotBefore > now {
		w.State = later
		q.arm(w, w.NotBefore)
		return
	}
	w.State = pending
	w.enqueue()
	q.arm(w, w.queueDeadline())
}

// queueDeadline returns the time at which the QueueTimeout of the work ends.
func (w *work) queueDeadline() instant {
	if w.QueueTimeout <= 0 {
		return never
	}
	return max(w.first.Submitted, w.NotBefore).after(w.QueueTimeout)
}

func (w *work) deadline() *instant { return &w.Due }
func (w *work) age() uint64        { return w.Seq }

func (w *work) expire(q *Queue, now instant) {
	switch w.State {
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
	}
}

// timeOut ends a work that waited for too long.
func (q *Queue) timeOut(w *work, now instant) {
	q.end(w.first, now, Result{
		Outcome: TimedOut,
		Error:   fmt.Sprintf("no delegate took it within %s: %s", w.QueueTimeout, w.reason()),
	})
}

// note records the fate of the work at a delegate.
func (w *work) note(d *delegate, f fate) {
	if w.Was == nil {
		w.Was = map[string]fate{}
	}
	w.Was[d.info.ID] = f
}

// Release ends a stage: its slot is free for another one. Its tasks must have ended,
// except detached ones. Releasing it again changes nothing. Release fails with
// [ErrUnknownWork].
func (q *Queue) Release(account, id string) error {
	defer q.unlock(q.lock())
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
		if r.State != done && !r.Detached {
			return fmt.Errorf("its task %s has not ended", r.ID)
		}
	}
	return nil
}

// Retry puts a stage that has begun back to its old place in the queue, with another
// first task. No delegate gets it before notBefore; the zero time is at once. The
// tasks of the stage must have ended, except detached ones, and the stage must not
// have been released.
//
// The stage releases its slot and its room in its groups. It keeps its age; its
// QueueTimeout and its RunTimeout begin again. Delegates that had the stage, or to which
// it was offered, get it only if no other one is free.
//
// Retry fails with [ErrUnknownWork], with [ErrFinished], also for a single task, and
// with [ErrExists] if a task of the account has the id of the new one.
func (q *Queue) Retry(account, id string, variants []Variant, notBefore time.Time) error {
	if err := checkVariants(variants); err != nil {
		return err
	}
	defer q.unlock(q.lock())
	w, err := q.work(account, id)
	if err != nil {
		return err
	}
	first := variants[0].Task
	switch {
	case !w.Stage:
		return fmt.Errorf("%s is a single task: %w", id, ErrFinished)
	case w.State == over:
		return ErrFinished
	case w.account.tasks[first.ID] != nil:
		return fmt.Errorf("%s: %w", first.ID, ErrExists)
	}
	if err := w.checkIdle(); err != nil {
		return fmt.Errorf("retrying %s: %w", id, err)
	}
	now := q.now()
	d, groups := w.leave(now)
	if d != nil {
		w.note(d, missed)
	}
	for id := range w.Was {
		w.Was[id] = missed // a delegate that refused the stage may have it again
	}
	w.rejoin(variants)
	w.postpone(notBefore)
	w.first.Former = true
	w.more = append(w.more, w.first)
	w.first, w.Variants, w.Variant = &record{work: w}, variants, 0
	q.addTask(w.first, first, now)
	q.wait(w, now)
	q.dispatch(w, d, groups, now)
	return nil
}

// leave takes a work from its delegate, if it has one. It returns the delegate, which has a
// free slot now, and the groups, which have more room.
func (w *work) leave(now instant) (*delegate, []*group) {
	d := w.delegate
	if d == nil {
		return nil, nil
	}
	delete(d.slots, w.ID)
	d.Idle = now
	d.touch()
	w.requirement.use(-1)
	return d, w.requirement.in
}

// finish ends a work and gives its slot and its room in groups away.
func (q *Queue) finish(w *work, now instant) {
	if w.State == over {
		return
	}
	w.dequeue()
	q.dropLease(w)
	d, groups := w.leave(now)
	w.requirement.quit()
	w.State, w.Variants, w.Selectors, w.requirement = over, nil, nil, nil
	q.arm(w, now.after(q.cfg.Retention))
	q.remember(w)
	q.dispatch(w, d, groups, now)
	q.forgetExcess(now)
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

// refusals are the sorted ids of the delegates that refused the work.
func (w *work) refusals() (ids []string) {
	for id, f := range w.Was {
		if f == refused {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (w *work) compare(o *work) int { return cmp.Compare(w.turn(), o.turn()) }
