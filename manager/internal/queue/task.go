package queue

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/delegate-io/dlite/task"
)

type taskState uint8

const (
	idle     taskState = iota // the first task of a work, while the work waits
	offered                   // a delegate may acquire it
	acquired                  // a delegate has it
	done                      // it has its result
)

// record is the queue's state of a task.
type record struct {
	taskFacts
	work  *work
	owner *delegate     // that has the task or had it last; it may be removed
	body  *task.Task    // nil after the end: it may be large
	end   *ending       // from the end or an abort on
	over  chan struct{} // closed at the end; nil until a caller asks for it
}

// taskFacts are the parts of a task that are saved as they are.
type taskFacts struct {
	ID        string    `json:"id"`
	Seq       uint64    `json:"seq,omitempty"` // of its last offer
	State     taskState `json:"state,omitempty"`
	Detached  bool      `json:"detached,omitempty"`
	Half      bool      `json:"half,omitempty"`     // the delegate has answered that an agent will answer
	Stopping  bool      `json:"stopping,omitempty"` // it is being aborted
	Answered  bool      `json:"answered,omitempty"`
	Former    bool      `json:"former,omitempty"` // it was the first task of its stage before a retry
	Submitted instant   `json:"submitted,omitempty"`
	Offered   instant   `json:"offered,omitempty"`
	Acquired  instant   `json:"acquired,omitempty"`
	Ended     instant   `json:"ended,omitempty"`
	Due       instant   `json:"due,omitempty"` // the end of its run, or of the offer of a stage's further task (offerDeadline)
}

// ending is how a task ended.
type ending struct {
	Kind string `json:"kind,omitempty"` // the type of the task
	Result
	HasData bool `json:"data,omitempty"` // for a saved queue
}

// addTask adds a task to its work and its account.
func (q *Queue) addTask(r *record, body *task.Task, now instant) {
	r.ID, r.body, r.Submitted = body.ID, body, now
	if r != r.work.first {
		r.work.more = append(r.work.more, r)
	}
	r.work.account.tasks[r.ID] = r
}

// result returns how the task ended, the zero value before.
func (r *record) result() Result {
	if r.end == nil {
		return Result{}
	}
	return r.end.Result
}

// Append gives a stage's delegate another task. If the delegate is lost, a peer gets the
// stage; without one the task ends as [Abandoned] at once. Append fails with [ErrUnknownWork], with
// [ErrUnknownDelegate] while the stage waits, with [ErrExists], and with
// [ErrFinished], also for a single task.
func (q *Queue) Append(account, work string, t *task.Task) error {
	return q.append(account, work, t, false)
}

// AppendDetached gives a stage's delegate a task that does not keep the stage from
// being released: a cleanup. If the delegate is lost, a peer gets the task; without one
// the task waits. AppendDetached
// fails like [Queue.Append], and with [ErrUnknownDelegate] if the delegate has
// unregistered or is forgotten.
func (q *Queue) AppendDetached(account, work string, t *task.Task) error {
	return q.append(account, work, t, true)
}

func (q *Queue) append(account, work string, t *task.Task, detached bool) error {
	defer q.unlock(q.lock())
	w, err := q.work(account, work)
	switch {
	case err != nil:
		return err
	case !w.Stage:
		return fmt.Errorf("%s is a single task: %w", work, ErrFinished)
	case w.State == over:
		return ErrFinished
	case w.account.tasks[t.ID] != nil:
		return fmt.Errorf("%s: %w", t.ID, ErrExists)
	case w.delegate == nil:
		return fmt.Errorf("no delegate has %s: %w", work, ErrUnknownDelegate)
	}
	d, now := w.delegate, q.now()
	r := &record{work: w, owner: d, body: t, taskFacts: taskFacts{Detached: detached}}
	if d.Lost {
		if p := r.peer(); p != nil {
			d = p
		}
	}
	if detached && d.Removed {
		return fmt.Errorf("%s: %w", d.info.ID, ErrUnknownDelegate)
	}
	q.addTask(r, t, now)
	if !detached && d.Lost {
		q.end(r, now, Result{Outcome: Abandoned, Error: d.absence()})
		return nil
	}
	q.giveFurther(r, d, now)
	return nil
}

// answerDeadline returns when a task that begins now times out.
func (q *Queue) answerDeadline(t *task.Task, now instant) instant {
	if t.Timeout <= 0 {
		return never
	}
	return now.after(t.Timeout.Duration()).after(q.cfg.AnswerGrace)
}

func (r *record) deadline() *instant { return &r.Due }
func (r *record) age() uint64        { return r.Seq }

// expire ends a task that was not acquired or not answered in time. An offer moves to a
// peer, or stands, until the time of the task is over.
func (r *record) expire(q *Queue, now instant) {
	if r.State == offered && now < q.taskDeadline(r) {
		if !q.handOver(r, now) {
			q.arm(r, q.offerDeadline(r, now))
		}
		return
	}
	res := Result{Outcome: TimedOut}
	switch {
	case r.Stopping:
		res = r.result() // the abort has set it
	case r.State == offered:
		res.Error = fmt.Sprintf("the delegate %q did not take the task within its time-out of %s",
			r.owner.label(), r.body.Timeout.Duration())
	default:
		res.Error = fmt.Sprintf("the task was not answered within its time-out of %s", r.body.Timeout.Duration())
	}
	q.end(r, now, res)
}

// give offers a task to a delegate.
func (q *Queue) give(r *record, d *delegate, now instant) {
	r.State, r.owner, r.Offered, r.Seq = offered, d, now, q.number()
	d.open[r.ID] = r
	d.touch()
	d.wakePoll()
}

// take removes a task from its delegate, if one has it. That wakes the delegate's held
// poll if the task was only offered. A delegate that has answered knows: waking it
// would make it poll without a pause.
func (q *Queue) take(r *record) {
	q.disarm(r)
	d := r.owner
	if d == nil {
		return
	}
	delete(d.open, r.ID)
	d.touch()
	if r.State == offered {
		d.wakePoll()
	}
}

// Acquire gives an offered task to its delegate. Until the answer it returns the task to
// the same delegate again, because the first response may have been lost. It returns nil
// without an error if the task is not, or no longer, offered to the delegate. The
// caller must not change the task. Acquire fails with [ErrUnknownDelegate].
func (q *Queue) Acquire(account, delegate, id string) (*task.Task, error) {
	defer q.unlock(q.lock())
	d, err := q.delegate(account, delegate)
	if err != nil {
		return nil, err
	}
	r := d.open[id]
	switch {
	case r == nil || r.Stopping || r.Half:
		return nil, nil
	case r.State == acquired:
		return r.body, nil
	}
	now, w := q.now(), r.work
	r.State, r.Acquired = acquired, now
	q.arm(r, q.answerDeadline(r.body, now))
	if r == w.first {
		w.State = running
		q.disarm(w)
		if w.RunTimeout > 0 {
			q.arm(w, now.after(w.RunTimeout))
		}
	}
	q.emit(Acquired, now, r)
	return r.body, nil
}

// Answer is a delegate's answer to a task.
type Answer struct {
	// Outcome is Success, Failure or TimedOut.
	Outcome Outcome
	// Retry asks for another delegate. It counts for single tasks and for the first
	// tasks of stages.
	Retry bool
	// Running means that an agent will answer later. The task continues.
	Running bool
	Code    task.Code
	Error   string
	Data    json.RawMessage
}

// Complete takes a delegate's answer. It accepts an answer that comes again, or after
// the task has ended otherwise, and changes nothing. Complete fails with
// [ErrUnknownTask], and with [ErrNotOwner] if the delegate has not acquired the task.
func (q *Queue) Complete(account, delegate, id string, a Answer) error {
	defer q.unlock(q.lock())
	r, err := q.record(account, id)
	switch {
	case err != nil:
		return err
	case r == r.work.first && r.work.Was[delegate] == refused: // it has asked for another delegate
		return nil
	case r.Former && r.work.Was[delegate] == missed: // it may have run the task before the retry
		return nil
	case r.owner == nil || r.owner.info.ID != delegate || r.State == offered || r.State == idle:
		return ErrNotOwner
	case r.State == done:
		if !a.Running {
			delete(r.owner.stops, id)
		}
		return nil
	case a.Running:
		r.Half = true
		return nil
	}
	now := q.now()
	delete(r.owner.stops, id)
	if a.Retry && q.moveToOther(r, now) {
		return nil
	}
	r.Answered = true
	res := Result{Outcome: a.Outcome, Code: a.Code, Error: a.Error, Data: a.Data}
	switch {
	case r.Stopping:
		res.Outcome, res.Error = Aborted, cmp.Or(r.result().Error, a.Error)
	case a.Retry:
		res.Outcome = Failure
		res.Error = cmp.Or(a.Error, "the delegate asked for another delegate, and there may be none")
	}
	q.end(r, now, res)
	return nil
}

// moveToOther puts the work of a task that its delegate refused back into the queue,
// for another delegate. It returns false if the work cannot move or was refused too
// often.
func (q *Queue) moveToOther(r *record, now instant) bool {
	w := r.work
	if r != w.first || r.Stopping || r.Half || len(w.refusals())+1 >= q.cfg.MaxAttempts {
		return false
	}
	w.note(r.owner, refused)
	w.rejoin(w.Variants)
	q.disarm(w)
	q.requeue(w, now)
	return true
}

// end gives a task its result.
func (q *Queue) end(r *record, now instant, res Result) {
	if r.State == done {
		return
	}
	q.take(r)
	if d := r.owner; d != nil && !d.Removed && r.State == acquired && !r.Answered && d.stops[r.ID] == nil {
		d.stops[r.ID] = r // the delegate runs the task and must stop it
		d.wakePoll()
	}
	r.State, r.Ended, r.end = done, now, &ending{Kind: r.body.Type, Result: res}
	if r.over != nil {
		close(r.over)
	}
	w := r.work
	if r == w.first && w.State != running {
		w.dequeue()
		q.disarm(w)
	}
	q.emit(Ended, now, r)
	r.body = nil
	if r == w.first {
		w.Variants = nil
	}
	size := len(res.Data) + len(res.Error)
	w.Size += size
	if w.State == over {
		q.count(w.account, 0, size)
	}
	if w.Stage {
		r.end.Data = nil // the event has it
	} else {
		q.finish(w, now)
	}
}

// Abort ends a task: at once if no delegate has acquired it, or if the delegate cannot
// learn of the abort (see [Queue.SetUnaware]). Otherwise the queue tells the delegate, and
// the task ends with its answer, or after AbortGrace. Aborting a task that is being
// aborted or has ended changes nothing. Abort fails with [ErrUnknownTask].
func (q *Queue) Abort(account, id, reason string) error {
	defer q.unlock(q.lock())
	r, err := q.record(account, id)
	if err != nil {
		return err
	}
	now, res := q.now(), Result{Outcome: Aborted, Error: reason}
	switch {
	case r.State == done || r.Stopping:
		return nil
	case r.State != acquired || r.owner.Unaware:
		q.end(r, now, res)
		return nil
	}
	r.Stopping, r.end = true, &ending{Result: res}
	r.owner.stops[id] = r
	r.owner.wakePoll()
	if at := now.after(q.cfg.AbortGrace); r.Due == 0 || at < r.Due {
		q.arm(r, at)
	}
	return nil
}
