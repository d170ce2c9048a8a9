package poller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// errAborted is the cause with which the context of an aborted task ends.
var errAborted = errors.New("the task has been aborted")

// kinds are the task kinds, in the order in which the scheduler serves them.
var kinds = [...]taskkind.Kind{taskkind.Cleanup, taskkind.Execute, taskkind.Standalone, taskkind.Init}

// taskTable holds the tasks that the delegate knows: pending ones, by kind, and
// active ones. The poll loop updates the pending ones from the manager's list.
// Only the scheduler claims tasks. Each kind has its own executors, so a delegate
// full of steps still runs cleanups at once (rule P3).
type taskTable struct {
	executors int // how many tasks of each kind run at once

	mu         sync.Mutex
	draining   bool
	pending    [len(kinds)][]task.Event // by kind, in the manager's order
	active     map[string]*job          // from the claim to the delivery of the answer
	running    [len(kinds)]int          // occupied executors
	handled    *recentIDs               // ids of acquired tasks
	claims     int                      // number of all claims
	closed     bool                     // later claims fail
	listed     map[string]bool          // by the latest poll
	retryAt    map[string]time.Time     // earliest time for the next attempt at an event
	unanswered map[string]unanswered    // possibly acquired, see unanswered
	refused    map[string]string        // counted refusals
	wake       chan struct{}            // for the scheduler
	watchers   chan struct{}            // closed at the next change; nil without watchers
	runningLow chan struct{}            // for the poll loop: few tasks are pending
}

// unanswered is an event whose acquire got no answer. The manager may have given
// the task to this delegate, and then does not list it any more.
type unanswered struct {
	task.Event
	since time.Time
}

// unansweredFor is how long the delegate tries to acquire such a task. After that
// the manager has given the task up, or it never belonged to this delegate.
const unansweredFor = time.Hour

// job is a task from its event to its answer.
type job struct {
	event    task.Event
	kind     taskkind.Kind
	slot     *capacity.Slot // nil unless the task is an init
	previous *taken         // set for a task of an earlier process

	// Guarded by the lock of the task table.
	abort   context.CancelCauseFunc // nil until the handler runs
	aborted bool
}

func newTaskTable(executors int) *taskTable {
	return &taskTable{
		executors: executors, active: map[string]*job{}, handled: newRecentIDs(),
		retryAt: map[string]time.Time{}, unanswered: map[string]unanswered{}, refused: map[string]string{}, wake: make(chan struct{}, 1),
		runningLow: make(chan struct{}, 1),
	}
}

// update replaces the pending tasks by the manager's list and aborts the tasks
// that the manager wants aborted. It reports whether the list has something new.
func (t *taskTable) update(p *client.Pending, now time.Time) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.pending {
		t.pending[k] = t.pending[k][:0]
	}
	listed := make(map[string]bool, len(p.Events))
	for _, e := range p.Events {
		if e.TaskID == "" || listed[e.TaskID] {
			continue
		}
		listed[e.TaskID] = true
		news = news || !t.listed[e.TaskID]
		if t.active[e.TaskID] == nil && !t.handled.contains(e.TaskID, now) {
			k := taskkind.Of(e.TaskType)
			t.pending[k] = append(t.pending[k], e)
		}
	}
	for id, u := range t.unanswered {
		if !listed[id] && t.active[id] == nil {
			k := taskkind.Of(u.TaskType)
			t.pending[k] = append(t.pending[k], u.Event)
		}
	}
	t.listed = listed
	t.pruneRefused()
	for _, id := range p.Aborted {
		news = t.abortTask(id) || news
	}
	t.notify()
	return news
}

// pruneRefused drops refused events that the manager does not list any more. The
// caller holds mu.
func (t *taskTable) pruneRefused() {
	for id := range t.retryAt {
		if _, possiblyOurs := t.unanswered[id]; !possiblyOurs && !t.listed[id] {
			delete(t.retryAt, id)
		}
	}
	for id := range t.refused {
		if !t.listed[id] {
			delete(t.refused, id)
		}
	}
}

// abortTask aborts an active task. It reports whether the task was not aborted
// before. The caller holds mu.
func (t *taskTable) abortTask(id string) bool {
	j := t.active[id]
	if j == nil || j.aborted {
		return false
	}
	j.aborted = true
	if j.abort != nil {
		j.abort(errAborted)
	}
	return true
}

// candidates returns the first events of a kind that may start now: as many as
// executors are free, or least if that is more.
func (t *taskTable) candidates(kind taskkind.Kind, now time.Time, least int) []task.Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	room := t.executors - t.running[kind]
	if room <= 0 || len(t.pending[kind]) == 0 {
		return nil
	}
	var out []task.Event
	for _, e := range t.pending[kind] {
		if now.Before(t.retryAt[e.TaskID]) {
			continue
		}
		if out = append(out, e); len(out) >= max(room, least) {
			break
		}
	}
	return out
}

// refusesKind reports whether the drain prevents tasks of a kind from starting.
func (t *taskTable) refusesKind(kind taskkind.Kind) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.draining && (kind == taskkind.Init || kind == taskkind.Standalone)
}

// claim gives an event an executor. It returns nil if the manager no longer lists
// the event, or if the drain has ended.
func (t *taskTable) claim(e task.Event, kind taskkind.Kind, slot *capacity.Slot) *job {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.pending[kind], func(p task.Event) bool { return p.TaskID == e.TaskID })
	if i < 0 || t.closed {
		return nil
	}
	if i == 0 { // the usual case
		t.pending[kind] = t.pending[kind][1:]
	} else {
		t.pending[kind] = slices.Delete(t.pending[kind], i, i+1)
	}
	delete(t.retryAt, e.TaskID)
	delete(t.refused, e.TaskID)
	if len(t.pending[kind]) < t.executors {
		wakeUp(t.runningLow)
	}
	j := &job{event: e, kind: kind, slot: slot}
	t.active[e.TaskID] = j
	t.running[kind]++
	t.claims++
	return j
}

// addResumed adds a task that an earlier process of the delegate had taken, even
// if no executor is free.
func (t *taskTable) addResumed(j *job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.active[j.event.TaskID] = j
	t.running[j.kind]++
	t.claims++
}

// postpone leaves an event pending until at least a time. It reports whether the
// refusal is new: a refusal counts once for an event and reason.
func (t *taskTable) postpone(e task.Event, why string, until time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retryAt[e.TaskID] = until
	news := t.refused[e.TaskID] != why
	t.refused[e.TaskID] = why
	return news
}

// setAbort makes a job abortable. An abort that came earlier takes effect now.
func (t *taskTable) setAbort(j *job, abort context.CancelCauseFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j.abort = abort
	if j.aborted {
		abort(errAborted)
	}
}

// releaseExecutor frees the executor of a job. The answer of the job may still be
// under way.
func (t *taskTable) releaseExecutor(j *job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[j.kind]--
	t.notify()
}

// finish ends a job whose task was acquired. The task is never acquired again,
// even if the manager still lists it.
func (t *taskTable) finish(j *job, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.active, j.event.TaskID)
	delete(t.unanswered, j.event.TaskID)
	t.handled.add(j.event.TaskID, now)
	t.notify()
}

// putBack ends a job whose task could not be acquired. The delegate tries again at
// the given time if the manager still lists the task. If the acquire got no answer
// it also tries again without that: the manager may have given the task away, and
// its answer was lost.
func (t *taskTable) putBack(j *job, noAnswer bool, again time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, now := j.event.TaskID, time.Now()
	delete(t.active, id)
	u, known := t.unanswered[id]
	switch {
	case !noAnswer || known && now.Sub(u.since) > unansweredFor:
		delete(t.unanswered, id)
	case !known:
		t.unanswered[id] = unanswered{j.event, now}
	}
	t.retryAt[id] = again
	t.pending[j.kind] = append(t.pending[j.kind], j.event)
	t.notify()
}

// reconsider has the schedule loop look at the events again.
func (t *taskTable) reconsider() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notify()
}

func (t *taskTable) beginDrain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draining = true
	t.notify()
}

// idle reports whether no task is active, and how many tasks were ever claimed.
func (t *taskTable) idle() (bool, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.active) == 0, t.claims
}

// closeIfIdle prevents all later claims if no task is active and no task was
// claimed since idle returned claims. It reports whether the table is closed.
func (t *taskTable) closeIfIdle(claims int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = t.closed || len(t.active) == 0 && t.claims == claims
	return t.closed
}

// pendingCount returns the number of events that are not claimed.
func (t *taskTable) pendingCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, p := range t.pending {
		n += len(p)
	}
	return n
}

// runningTypes returns the types of the tasks that run or are being answered,
// sorted.
func (t *taskTable) runningTypes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	types := []string{}
	for _, j := range t.active {
		types = append(types, j.event.TaskType)
	}
	slices.Sort(types)
	return types
}

// runningOf returns the number of tasks of a kind that occupy an executor.
func (t *taskTable) runningOf(kind taskkind.Kind) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running[kind]
}

// changed returns a channel that is closed when the list changes, a task ends or
// the drain begins.
func (t *taskTable) changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watchers == nil {
		t.watchers = make(chan struct{})
	}
	return t.watchers
}

// notify wakes the scheduler and all watchers. The caller holds mu.
func (t *taskTable) notify() {
	wakeUp(t.wake)
	if t.watchers != nil {
		close(t.watchers)
		t.watchers = nil
	}
}

// wakeUp leaves one element in a channel with room for one.
func wakeUp(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
