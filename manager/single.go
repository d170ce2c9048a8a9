package manager

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
)

// TaskRequest describes a single task. It belongs to no stage and uses no slot. Its
// JSON is the JSON of the task (docs/protocol.md, sections 1 and 2) with the fields
// below as further members. Members that the manager does not know are passed to the
// delegate.
type TaskRequest struct {
	// Task is the task for the delegate. Type is required. If ID is empty, the
	// manager chooses one. A Timeout of 0 means [Config.TaskTimeout]. Sync
	// determines Async.
	Task task.Task
	// Selectors and Priority have the same meaning as in [api.StageRequest].
	Selectors []string
	Priority  string
	// QueueTimeout bounds the wait for a delegate. 0 means the task's time-out.
	QueueTimeout task.Millis
	// Retry is the policy for submitting the task again. Nil means never.
	Retry *api.Retry
	// Sync means that the submitter waits for the result. Over HTTP, the call
	// returns when the task has ended, or after [Config.MaxSync]. In Go, call
	// [Manager.WaitTask].
	Sync bool
}

// control holds the members that are meant for the manager.
type control struct {
	Selectors    []string    `json:"selectors,omitempty"`
	Priority     string      `json:"priority,omitempty"`
	Timeout      task.Millis `json:"timeout_ms,omitempty"`
	QueueTimeout task.Millis `json:"queue_timeout_ms,omitempty"`
	Sync         bool        `json:"sync,omitempty"`
	Retry        *api.Retry  `json:"retry,omitempty"`
}

// UnmarshalJSON splits the object into the task and the manager's members.
func (t *TaskRequest) UnmarshalJSON(b []byte) error {
	var c control
	if err := json.Unmarshal(b, &c); err != nil {
		return err
	}
	o := object{}
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	for _, name := range []string{"selectors", "priority", "timeout_ms", "queue_timeout_ms", "sync", "retry"} {
		delete(o, name)
	}
	rest, err := o.encode()
	if err != nil {
		return err
	}
	*t = TaskRequest{Selectors: c.Selectors, Priority: c.Priority, QueueTimeout: c.QueueTimeout, Sync: c.Sync, Retry: c.Retry}
	if err := json.Unmarshal(rest, &t.Task); err != nil {
		return err
	}
	t.Task.Timeout = cmp.Or(c.Timeout, t.Task.Timeout)
	return nil
}

// MarshalJSON joins the task and the manager's members in one object.
func (t TaskRequest) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(&t.Task)
	if err != nil {
		return nil, err
	}
	o := object{}
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, err
	}
	if b, err = json.Marshal(control{
		Selectors: t.Selectors, Priority: t.Priority, QueueTimeout: t.QueueTimeout, Sync: t.Sync, Retry: t.Retry,
	}); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, err
	}
	return o.encode()
}

// single is the part of a single task's state that the queue does not have. The
// core's lock guards it.
type single struct {
	Digest string `json:"digest"`
	Size   int    `json:"size,omitempty"` // see [Budget.Bytes]; 0 after the end
	lifecycle

	// Work is the work to submit again. It is nil without a retry policy, and after the
	// task's end.
	Work     *singleWork `json:"work,omitempty"`
	Attempts int         `json:"attempts,omitempty"`
	Current  string      `json:"current,omitempty"` // the id of the current attempt, after the first
}

// isRetried reports whether the current attempt is not the first.
func (t *single) isRetried() bool { return t.Current != "" }

// SubmitTask queues a single task. If the account already has the same task under
// the id, SubmitTask returns that one. It fails with [ErrInvalid] and [ErrBudget], and
// with [ErrConflict] if something else has the id.
func (m *Manager) SubmitTask(ctx context.Context, account string, req TaskRequest) (api.Task, error) {
	t, _, err := m.submitTask(ctx, account, req)
	return t, err
}

func (m *Manager) submitTask(ctx context.Context, account string, req TaskRequest) (t api.Task, existed bool, err error) {
	ctx, span := m.startSubmit(taskTraceContext(ctx, &req.Task), account)
	defer func() { endSubmit(span, err) }()
	s, err := m.newTask(account, &req)
	if err != nil {
		return api.Task{}, false, err
	}
	release, err := m.takeWork(account, s.Task.ID, s.Single.Size)
	if err != nil {
		return api.Task{}, false, err
	}
	defer release()
	id, traced := s.Task.ID, m.startSpan(ctx, "task", account, s.Task.ID, m.cfg.Clock.Now())
	traced.joinTask(s.Task)
	s.Single.Trace = traced
	r, err := m.applyCommand(ctx, &command{Account: account, SubmitTask: s})
	if err != nil || r.existed {
		m.dropSpan(traced)
	}
	if err != nil {
		return api.Task{}, r.existed, err
	}
	t, err = m.Task(account, id)
	return t, r.existed, err
}

// submitTask adds a single task, unless it exists.
func (c *core) submitTask(account string, s *submitTaskCommand) (existed bool, err error) {
	k := key{account, s.Task.ID}
	if old := c.tasks[k]; old != nil {
		if old.Digest != s.Single.Digest {
			return true, fmt.Errorf("%w: there is another task %q", ErrConflict, k.id)
		}
		return true, nil
	}
	if err := c.queue.Submit(account, s.queueWork(time.Time{})); err != nil {
		return false, fmt.Errorf("%w: %w", ErrConflict, err)
	}
	t := s.Single
	if t.Retry != nil {
		t.Work = &s.singleWork
	}
	c.tasks[k] = &t
	c.occupy(account, workAmounts(t.Size), 1)
	c.publish(account, api.Event{Type: taskEvent, Task: k.id, Status: api.Queued})
	c.submitted(account, taskKind, &t.lifecycle)
	return false, nil
}

func (w *singleWork) queueWork(notBefore time.Time) *queue.Work {
	return &queue.Work{
		ID: w.Task.ID, Priority: w.Priority, Selectors: w.Selectors, QueueTimeout: w.QueueTimeout, NotBefore: notBefore, Size: keptTask + 2*len(w.Task.ID),
		Variants: []queue.Variant{{Types: []string{w.Task.Type}, Task: w.Task}},
	}
}

// retryTask submits an ended task once more under a new id, if its policy allows it.
// It reports whether it did.
func (c *core) retryTask(k key, t *single, o queue.Outcome) bool {
	why := map[queue.Outcome]string{queue.Abandoned: retryOnLost, queue.TimedOut: retryOnTimeout, queue.Failure: retryOnFailure}[o]
	if !t.allowsRetry(t.Attempts+1, why) {
		return false
	}
	next, body := *t.Work, *t.Work.Task
	body.ID = k.id + "-" + strconv.Itoa(t.Attempts+2)
	next.Task = &body
	if c.queue.Submit(k.account, next.queueWork(c.at.Add(retryWait(t.Retry, t.Attempts+2)))) != nil {
		return false // something else has the id
	}
	delete(c.attempts, key{k.account, t.Current})
	t.Attempts++
	t.Current = body.ID
	c.attempts[key{k.account, t.Current}] = k.id
	c.retried(k.account, &t.lifecycle)
	c.publish(k.account, api.Event{Type: taskEvent, Task: k.id, Status: api.Queued})
	return true
}

// taskOf returns the single task that a work item is an attempt of. It returns nil
// if a later attempt has replaced the work item.
func (c *core) taskOf(work key) (key, *single) {
	k := work
	if id, ok := c.attempts[work]; ok {
		k.id = id
	}
	t := c.tasks[k]
	if t != nil && cmp.Or(t.Current, k.id) != work.id {
		return k, nil
	}
	return k, t
}

func (c *core) forgetTask(work key) {
	if k, t := c.taskOf(work); t != nil {
		delete(c.tasks, k)
	}
	delete(c.attempts, work)
}

// newTask checks a request and returns the command that submits it.
func (m *Manager) newTask(account string, req *TaskRequest) (*submitTaskCommand, error) {
	if err := firstError(m.checkAccount(account), req.check()); err != nil {
		return nil, err
	}
	priority, err := checkPriority(&req.Priority)
	if err != nil {
		return nil, err
	}
	req.Selectors, req.Retry = withoutBlank(req.Selectors), completeRetry(req.Retry)
	body := req.Task
	body.Async = !req.Sync
	body.Timeout = cmp.Or(body.Timeout, toMillis(m.cfg.TaskTimeout))
	body.Traceparent, body.Tracestate = "", "" // the same submission may come in another trace
	req.Task = body
	sum, size, err := digest(*req, taskBounds)
	if err != nil {
		return nil, err
	}
	body.ID = cmp.Or(body.ID, rand.Text())
	return &submitTaskCommand{
		Single: single{Digest: sum, Size: size + partSize, lifecycle: lifecycle{Retry: req.Retry}},
		singleWork: singleWork{
			Task: &body, Priority: priority, Selectors: req.Selectors,
			QueueTimeout: cmp.Or(req.QueueTimeout, body.Timeout).Duration(),
		},
	}, nil
}

// Task returns the state of a single task. It fails with [ErrNotFound].
func (m *Manager) Task(account, id string) (api.Task, error) {
	t, _, err := m.core.task(account, id)
	return t, err
}

// syncedTask returns a single task's state. If this process does not know the task,
// it first reads the store, because another manager may have just accepted it.
func (m *Manager) syncedTask(ctx context.Context, account, id string) (api.Task, error) {
	return synced(ctx, m, func() (api.Task, error) { return m.Task(account, id) })
}

// task returns a single task's state, and a channel that is closed when the caller
// has to call task again: the task has ended, or the state was reloaded.
func (c *core) task(account, id string) (api.Task, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.tasks[key{account, id}]
	if one == nil { // tasks of stages are not single tasks
		return api.Task{}, nil, fmt.Errorf("task %q: %w", id, ErrNotFound)
	}
	current := cmp.Or(one.Current, id)
	s, err := c.queue.Task(account, current)
	if err != nil {
		return api.Task{}, nil, fmt.Errorf("task %q: %w", id, ErrNotFound)
	}
	t := api.Task{
		ID: id, Type: s.Task.Type, Status: api.Queued, DelegateID: s.Delegate, Attempts: one.Attempts,
		SubmittedAt: s.Submitted, StartedAt: s.Acquired, EndedAt: s.Ended,
		Error: s.Result.Error, Code: string(s.Result.Code), Data: s.Result.Data,
	}
	switch s.Result.Outcome {
	case queue.Success, queue.TimedOut, queue.Aborted, queue.Failure, queue.Abandoned:
		t.Status = statusOf(s.Result.Outcome)
	default:
		if !s.Acquired.IsZero() {
			t.Status = api.Running
		} else if p, err := c.queue.Place(account, current); err == nil {
			t.Reason = p.Reason
		}
	}
	return t, s.Done, nil
}

// WaitTask waits until a single task has ended. If ctx ends or the manager closes
// first, it returns the current state and an error. It also fails with
// [ErrNotFound].
func (m *Manager) WaitTask(ctx context.Context, account, id string) (api.Task, error) {
	if _, err := m.syncedTask(ctx, account, id); err != nil {
		return api.Task{}, err
	}
	return waitEnded(ctx, m, (*api.Task).Ended, func() (api.Task, <-chan struct{}, error) { return m.core.task(account, id) })
}

// AbortTask aborts a single task. A queued task ends at once. Otherwise the task
// ends with the delegate's answer, or after [Config.AbortGrace]. An ended task does
// not change. AbortTask fails with [ErrNotFound].
func (m *Manager) AbortTask(ctx context.Context, account, id string) (api.Task, error) {
	if _, err := m.applyCommand(ctx, &command{Account: account, AbortTask: &idCommand{id}}); err != nil {
		return api.Task{}, err
	}
	return m.Task(account, id)
}

func (c *core) abortTask(account, id string) error {
	t := c.tasks[key{account, id}]
	if t == nil {
		return fmt.Errorf("task %q: %w", id, ErrNotFound)
	}
	return c.queue.Abort(account, cmp.Or(t.Current, id), "the task was aborted")
}

// handleTaskEvent handles an event of a single task. The queue holds the rest of the
// task's state.
func (c *core) handleTaskEvent(work key, e *queue.Event) {
	k, t := c.taskOf(work)
	if t == nil {
		return
	}
	switch e.Kind {
	case queue.Acquired:
		c.started(k.account, taskKind, &t.lifecycle, e.At)
		c.publish(k.account, api.Event{Type: taskEvent, Task: k.id, Delegate: e.Delegate, Status: api.Running})
	case queue.Requeued:
		t.requeued(e.At)
		c.publish(k.account, api.Event{Type: taskEvent, Task: k.id, Status: api.Queued})
	case queue.Ended:
		if c.retryTask(k, t, e.Result.Outcome) {
			return
		}
		t.Work = nil // it may be large
		if t.Size > 0 {
			c.occupy(k.account, workAmounts(t.Size), -1)
			t.Size = 0
		}
		status := statusOf(e.Result.Outcome)
		c.ended(k.account, taskKind, &t.lifecycle, status, e.Delegate, e.At)
		c.publish(k.account, api.Event{Type: taskEvent, Task: k.id, Delegate: e.Delegate, Status: status, Error: e.Result.Error})
	}
}
