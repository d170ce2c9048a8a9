package queue

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/delegate-io/dlite/task"
)

type taskState uint8

const (
	idle     taskState = iota // a work's first task, while that waits
	offered                   // a delegate may acquire it
	acquired                  // a delegate has it
	done                      // it has its result
)

// record is a task. The queue's lock guards it.
type record struct {
	id       string
	body     *task.Task // nil after the end: it may be large
	seq      uint64
	owner    *delegate // that has it, or had it last; it may be removed
	state    taskState
	detached bool
	half     bool // the delegate has said that an agent will answer
	stopping bool // it is being aborted
	answered bool
	former   bool // was the first task of its stage before a retry

	submitted, offered, acquired, ended instant

	work  *work
	timer timer         // the end of its run, or of an offer to a stage's delegate
	end   *ending       // from the end or an abort on
	over  chan struct{} // closed at the end; nil while nobody has asked for it
}

// ending is what is left of a task in the end.
type ending struct {
	kind   string // the task's type
	result Result
}

// enlist makes a task known. The caller holds mu.
func (q *Queue) enlist(r *record, body *task.Task, now instant) {
	r.id, r.body, r.submitted = body.ID, body, now
	if r != r.work.first {
		r.work.more = append(r.work.more, r)
	}
	r.work.acc.tasks[r.id] = r
}

// result is how the task ended, if it has.
func (r *record) result() Result {
	if r.end == nil {
		return Result{}
	}
	return r.end.result
}

// Append gives a stage's delegate another task. When the delegate is lost, the
// task ends as [Abandoned] at once. It fails with [ErrUnknownWork],
// [ErrUnknownDelegate] while the stage waits, [ErrExists], and [ErrFinished],
// also for a single task.
func (q *Queue) Append(account, work string, t *task.Task) error {
	return q.append(account, work, t, false)
}

// AppendDetached gives a stage's delegate, lost as it may be, a task that does
// not keep the stage from being released and waits for the delegate's return: a
// cleanup. It fails as [Queue.Append], and with [ErrUnknownDelegate] when the
// delegate will not come back.
func (q *Queue) AppendDetached(account, work string, t *task.Task) error {
	return q.append(account, work, t, true)
}

func (q *Queue) append(account, work string, t *task.Task, detached bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	w, err := q.work(account, work)
	switch {
	case err != nil:
		return err
	case !w.Stage:
		return fmt.Errorf("%s is a single task: %w", work, ErrFinished)
	case w.state == over:
		return ErrFinished
	case w.acc.tasks[t.ID] != nil:
		return fmt.Errorf("%s: %w", t.ID, ErrExists)
	case w.d == nil:
		return fmt.Errorf("no delegate has %s: %w", work, ErrUnknownDelegate)
	}
	d, now := w.d, q.now()
	if detached && d.removed {
		return fmt.Errorf("%s: %w", d.info.ID, ErrUnknownDelegate)
	}
	r := &record{work: w, detached: detached}
	q.enlist(r, t, now)
	if !detached && d.lost {
		r.owner = d
		q.end(r, now, Result{Outcome: Abandoned, Error: d.absence()})
		return nil
	}
	q.give(r, d, now)
	if !detached {
		q.arm(r, q.until(t, now))
	}
	return nil
}

// until is the manager's end of a task that begins now; never without a
// time-out.
func (q *Queue) until(t *task.Task, now instant) instant {
	if t.Timeout <= 0 {
		return never
	}
	return now.after(t.Timeout.Duration()).after(q.cfg.AnswerGrace)
}

func (r *record) clock() *timer { return &r.timer }
func (r *record) age() uint64   { return r.seq }

// due ends a task that was not taken or not answered in time.
func (r *record) due(q *Queue, now instant) {
	res := Result{Outcome: TimedOut}
	switch {
	case r.stopping:
		res = r.result() // what the abort said
	case r.state == offered:
		res.Error = fmt.Sprintf("the delegate %q did not take the task within its time-out of %s",
			r.owner.label(), r.body.Timeout.Duration())
	default:
		res.Error = fmt.Sprintf("the task was not answered within its time-out of %s", r.body.Timeout.Duration())
	}
	q.end(r, now, res)
}

// give offers a task to a delegate. The caller holds mu.
func (q *Queue) give(r *record, d *delegate, now instant) {
	r.state, r.owner, r.offered, r.seq = offered, d, now, q.number()
	d.open[r.id] = r
	d.touch()
	d.bump()
}

// take removes a task from its delegate, if one has it. The delegate is told
// when it could still acquire it; that it has answered it knows by itself, and
// telling would make it poll without a pause. The caller holds mu.
func (q *Queue) take(r *record) {
	q.disarm(r)
	d := r.owner
	if d == nil || d.removed {
		return
	}
	delete(d.open, r.id)
	d.touch()
	if r.state == offered {
		d.bump()
	}
}

// Acquire takes a task for a delegate. Until the answer it gives the task again
// to the same delegate, whose first call's answer may have been lost. Nil
// without an error means that it is not, or no more, the delegate's to have. The
// task must not be changed. It fails with [ErrUnknownDelegate].
func (q *Queue) Acquire(account, delegate, id string) (*task.Task, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, err := q.delegate(account, delegate)
	if err != nil {
		return nil, err
	}
	r := d.open[id]
	switch {
	case r == nil || r.stopping || r.half:
		return nil, nil
	case r.state == acquired:
		return r.body, nil
	}
	now, w := q.now(), r.work
	r.state, r.acquired = acquired, now
	q.arm(r, q.until(r.body, now))
	if r == w.first {
		w.state = running
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
	// Retry asks for another delegate; it counts for single tasks and the first
	// tasks of stages.
	Retry bool
	// Running says that this is not the end: an agent will answer.
	Running bool
	Code    task.Code
	Error   string
	Data    json.RawMessage
}

// Complete takes a delegate's answer. An answer that comes again, or after the
// task has ended otherwise, is accepted and changes nothing. It fails with
// [ErrUnknownTask], and with [ErrNotOwner] when the delegate does not have the
// task and never had it.
func (q *Queue) Complete(account, delegate, id string, a Answer) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, err := q.record(account, id)
	switch {
	case err != nil:
		return err
	case r == r.work.first && r.work.was[delegate] == refused: // it handed it back
		return nil
	case r.former && r.work.was[delegate] == missed: // it may have handed it back, before the retry
		return nil
	case r.owner == nil || r.owner.info.ID != delegate || r.state == offered || r.state == idle:
		return ErrNotOwner
	case r.state == done:
		if !a.Running {
			delete(r.owner.stops, id)
		}
		return nil
	case a.Running:
		r.half = true
		return nil
	}
	now := q.now()
	delete(r.owner.stops, id)
	if a.Retry && q.another(r, now) {
		return nil
	}
	r.answered = true
	res := Result{Outcome: a.Outcome, Code: a.Code, Error: a.Error, Data: a.Data}
	switch {
	case r.stopping:
		res.Outcome, res.Error = Aborted, cmp.Or(r.result().Error, a.Error)
	case a.Retry:
		res.Outcome = Failure
		res.Error = cmp.Or(a.Error, "the delegate asked for another delegate, and there may be none")
	}
	q.end(r, now, res)
	return nil
}

// another gives a task that its delegate does not want to another one. It
// refuses when the task cannot move or has moved too often. The caller holds mu.
func (q *Queue) another(r *record, now instant) bool {
	w := r.work
	if r != w.first || r.stopping || r.half {
		return false
	}
	refusals := 1
	for _, f := range w.was {
		if f == refused {
			refusals++
		}
	}
	if refusals >= q.cfg.MaxAttempts {
		return false
	}
	w.note(r.owner, refused)
	q.disarm(w)
	q.requeue(w, now)
	return true
}

// end gives a task its result. The caller holds mu.
func (q *Queue) end(r *record, now instant, res Result) {
	if r.state == done {
		return
	}
	q.take(r)
	if d := r.owner; d != nil && !d.removed && r.state == acquired && !r.answered && d.stops[r.id] == nil {
		d.stops[r.id] = r // it runs there, and is to stop
		d.bump()
	}
	r.state, r.ended, r.end = done, now, &ending{r.body.Type, res}
	if r.over != nil {
		close(r.over)
	}
	w := r.work
	if r == w.first && w.state != running {
		q.unwait(w)
		q.disarm(w)
	}
	q.emit(Ended, now, r)
	r.body = nil
	if r == w.first {
		w.Variants = nil
	}
	q.keep(w, len(res.Data)+len(res.Error))
	if w.Stage {
		r.end.result.Data = nil // whoever follows the events has it
	} else {
		q.finish(w, now)
	}
}

// Abort ends a task: at once when no delegate has acquired it, otherwise the
// delegate is told and the task ends with its answer, or after AbortGrace.
// Aborting what is being aborted or has ended changes nothing. It fails with
// [ErrUnknownTask].
func (q *Queue) Abort(account, id, reason string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, err := q.record(account, id)
	if err != nil {
		return err
	}
	now, res := q.now(), Result{Outcome: Aborted, Error: reason}
	switch {
	case r.state == done || r.stopping:
		return nil
	case r.state != acquired:
		q.end(r, now, res)
		return nil
	}
	r.stopping, r.end = true, &ending{result: res}
	r.owner.stops[id] = r
	r.owner.bump()
	if at := now.after(q.cfg.AbortGrace); !r.timer.armed() || at < r.timer.at {
		q.arm(r, at)
	}
	return nil
}
