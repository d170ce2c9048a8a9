package queue

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/task"
)

// List has the tasks that a delegate may acquire, and those that it must stop.
type List struct {
	// Events are the tasks that are offered to the delegate, in the order of the
	// offers.
	Events []task.Event
	// Aborted are the sorted ids of tasks that the delegate has acquired and must
	// stop, until it has answered them.
	Aborted []string
	// Unaware is the value that [Queue.SetUnaware] has recorded.
	Unaware bool
	// Cursor stands for this list.
	Cursor string
	// Fresh reports whether the list has changed since the cursor in the call. Without
	// a cursor, it reports whether the list has an entry.
	Fresh bool
	// Changed is closed when the list changes by an offer, a withdrawal or an abort,
	// and when the delegate is removed. The delegate's own acquisitions and answers
	// are no change.
	Changed <-chan struct{}
}

// List returns a delegate's list. Since is the cursor of an earlier list of the same
// delegate, or empty; an unknown cursor counts as empty. List fails with
// [ErrUnknownDelegate].
func (q *Queue) List(account, delegate, since string) (List, error) {
	defer q.unlock(q.lock())
	d, err := q.delegate(account, delegate)
	if err != nil {
		return List{}, err
	}
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	prefix := q.epoch + "-" + strconv.FormatUint(d.Order, 36) + "-"
	l := List{Unaware: d.Unaware, Cursor: prefix + strconv.FormatUint(d.Version, 36), Changed: d.changed}
	for _, r := range d.tasks() {
		if r.State == offered {
			l.Events = append(l.Events, task.Event{
				TaskID: r.ID, TaskType: r.body.Type, Account: account, Sync: !r.body.Async, RunnerType: r.body.Driver,
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
			l.Fresh = d.Version > seen
		}
	}
	return l, nil
}

// TaskState is the state of a task.
type TaskState struct {
	// Task must not be changed. After the end it has only its ID and its Type.
	Task *task.Task
	// Delegate has the task, or had it last. It is empty while the task waits.
	Delegate string
	// A time is zero until its event.
	Submitted, Acquired, Ended time.Time
	// Result is the zero value until the end. For a task of a stage, only the event has
	// the Data.
	Result Result
	// Done is closed at the end.
	Done <-chan struct{}
}

// Task returns the state of a task. It fails with [ErrUnknownTask].
func (q *Queue) Task(account, id string) (TaskState, error) {
	defer q.unlock(q.lock())
	r, err := q.record(account, id)
	if err != nil {
		return TaskState{}, err
	}
	if r.over == nil {
		r.over = make(chan struct{})
		if r.State == done {
			close(r.over)
		}
	}
	s := TaskState{
		Task: r.body, Delegate: r.owner.id(), Done: r.over,
		Submitted: r.Submitted.time(), Acquired: r.Acquired.time(), Ended: r.Ended.time(),
	}
	if r.State == done {
		s.Task, s.Result = &task.Task{ID: r.ID, Type: r.end.Kind}, r.result()
	}
	return s, nil
}
