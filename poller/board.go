package poller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// errAborted is the cause that a task's context ends with on an abort.
var errAborted = errors.New("the task has been aborted")

// kinds are the lanes, the most urgent first.
var kinds = [...]task.Kind{task.Cleanup, task.Execute, task.Standalone, task.Init}

// board is what the delegate knows of the manager's list: what waits, what runs
// in which lane, and what has been handled already. The poll loop writes the
// list, the scheduler alone claims from it.
type board struct {
	lanes int // tasks at once in each lane

	mu       sync.Mutex
	draining bool
	pending  [len(kinds)][]task.Event // by kind, in the manager's order
	running  map[string]*job
	inLane   [len(kinds)]int
	handled  *memory              // ids of tasks that were acquired
	claims   int                  // tasks that were ever claimed
	retired  bool                 // nothing is claimed any more
	listed   map[string]bool      // by the latest poll
	later    map[string]time.Time // when to look again at an event that was refused
	unsure   map[string]unsure    // what may be ours, though the manager does not list it
	refused  map[string]Reason    // as counted
	wake     chan struct{}        // for the scheduler
	watch    chan struct{}        // for everybody else; nil while nobody asks
	hungry   chan struct{}        // for the poll loop: little is left to claim
}

// unsure is an event whose acquire got no answer: the manager may have given us the
// task, and takes it off its list.
type unsure struct {
	task.Event
	since time.Time
}

// unsureFor is how long we ask for such a task. A manager has given it up by then,
// or it was never ours.
const unsureFor = time.Hour

// job is a task between its event and its answer.
type job struct {
	event task.Event
	kind  task.Kind
	slot  *capacity.Slot // of an init
	owed  *taken         // by an earlier process; nil for an event of this one

	// The board's lock guards these.
	abort   context.CancelCauseFunc // nil until the handler runs
	aborted bool
}

func newBoard(lanes int) *board {
	return &board{
		lanes: lanes, running: map[string]*job{}, handled: newMemory(),
		later: map[string]time.Time{}, unsure: map[string]unsure{}, refused: map[string]Reason{}, wake: make(chan struct{}, 1),
		hungry: make(chan struct{}, 1),
	}
}

// list takes over the manager's list and aborts what it wants aborted. It says
// whether the list has something that the one before had not.
func (b *board) list(p *client.Pending, now time.Time) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range b.pending {
		b.pending[k] = b.pending[k][:0]
	}
	listed := make(map[string]bool, len(p.Events))
	for _, e := range p.Events {
		if e.TaskID == "" || listed[e.TaskID] {
			continue
		}
		listed[e.TaskID] = true
		news = news || !b.listed[e.TaskID]
		if b.running[e.TaskID] == nil && !b.handled.knows(e.TaskID, now) {
			k := task.KindOf(e.TaskType)
			b.pending[k] = append(b.pending[k], e)
		}
	}
	for id, u := range b.unsure {
		if !listed[id] && b.running[id] == nil {
			k := task.KindOf(u.TaskType)
			b.pending[k] = append(b.pending[k], u.Event)
		}
	}
	b.listed = listed
	b.forget()
	for _, id := range p.Aborted {
		news = b.abort(id) || news
	}
	b.notify()
	return news
}

// forget drops what was refused and is not listed any more. The caller holds mu.
func (b *board) forget() {
	for id := range b.later {
		if _, ours := b.unsure[id]; !ours && !b.listed[id] {
			delete(b.later, id)
		}
	}
	for id := range b.refused {
		if !b.listed[id] {
			delete(b.refused, id)
		}
	}
}

// abort ends a running task. It says whether that is news. The caller holds mu.
func (b *board) abort(id string) bool {
	j := b.running[id]
	if j == nil || j.aborted {
		return false
	}
	j.aborted = true
	if j.abort != nil {
		j.abort(errAborted)
	}
	return true
}

// candidates are the first events of a kind that may start now: as many as the
// lane has room for, or the given number when that is more.
func (b *board) candidates(kind task.Kind, now time.Time, least int) []task.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := b.lanes - b.inLane[kind]
	if room <= 0 || len(b.pending[kind]) == 0 {
		return nil
	}
	var out []task.Event
	for _, e := range b.pending[kind] {
		if now.Before(b.later[e.TaskID]) {
			continue
		}
		if out = append(out, e); len(out) >= max(room, least) {
			break
		}
	}
	return out
}

// closed says that the drain keeps tasks of a kind from starting.
func (b *board) closed(kind task.Kind) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.draining && (kind == task.Init || kind == task.Standalone)
}

// claim moves an event into its lane. It is nil when the manager has taken the
// event off its list in the meantime, or the drain has ended.
func (b *board) claim(e task.Event, kind task.Kind, slot *capacity.Slot) *job {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.pending[kind], func(p task.Event) bool { return p.TaskID == e.TaskID })
	if i < 0 || b.retired {
		return nil
	}
	if i == 0 { // as nearly always
		b.pending[kind] = b.pending[kind][1:]
	} else {
		b.pending[kind] = slices.Delete(b.pending[kind], i, i+1)
	}
	delete(b.later, e.TaskID)
	delete(b.refused, e.TaskID)
	if len(b.pending[kind]) < b.lanes {
		wakeUp(b.hungry)
	}
	j := &job{event: e, kind: kind, slot: slot}
	b.running[e.TaskID] = j
	b.inLane[kind]++
	b.claims++
	return j
}

// adopt puts a task in its lane that an earlier process of the delegate had
// taken, however full the lane is.
func (b *board) adopt(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[j.event.TaskID] = j
	b.inLane[j.kind]++
	b.claims++
}

// refuse leaves an event on the list until at least a time. It reports whether
// this is news: a refusal counts once per event and reason.
func (b *board) refuse(e task.Event, why Reason, until time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.later[e.TaskID] = until
	news := b.refused[e.TaskID] != why
	b.refused[e.TaskID] = why
	return news
}

// start makes a job abortable. An abort that came first takes effect now.
func (b *board) start(j *job, abort context.CancelCauseFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j.abort = abort
	if j.aborted {
		abort(errAborted)
	}
}

// vacate frees the job's place in its lane; its answer may still be under way.
func (b *board) vacate(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inLane[j.kind]--
	b.notify()
}

// done ends a job whose task was acquired: it is never taken again while the
// manager lists it.
func (b *board) done(j *job, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, j.event.TaskID)
	delete(b.unsure, j.event.TaskID)
	b.handled.add(j.event.TaskID, now)
	b.notify()
}

// missed ends a job whose task could not be acquired. It may be tried again at
// the given time, should the manager still list it then, or when there was no
// answer: a manager takes what it gives away off its list, and its answer may be
// what was lost.
func (b *board) missed(j *job, unanswered bool, again time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id, now := j.event.TaskID, time.Now()
	delete(b.running, id)
	u, known := b.unsure[id]
	switch {
	case !unanswered || known && now.Sub(u.since) > unsureFor:
		delete(b.unsure, id)
	case !known:
		b.unsure[id] = unsure{j.event, now}
	}
	b.later[id] = again
	b.pending[j.kind] = append(b.pending[j.kind], j.event)
	b.notify()
}

func (b *board) drain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draining = true
	b.notify()
}

// quiet says whether no task runs or is being answered, and how many were ever
// claimed.
func (b *board) quiet() (bool, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.running) == 0, b.claims
}

// retire keeps everything from being claimed, unless something was since quiet
// told the number of claims.
func (b *board) retire(claims int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retired = b.retired || len(b.running) == 0 && b.claims == claims
	return b.retired
}

// waiting says how many events have not been claimed.
func (b *board) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, p := range b.pending {
		n += len(p)
	}
	return n
}

// runningTypes returns the types of the tasks that run or are being answered,
// sorted.
func (b *board) runningTypes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	types := []string{}
	for _, j := range b.running {
		types = append(types, j.event.TaskType)
	}
	slices.Sort(types)
	return types
}

// lane counts the tasks that run in a lane.
func (b *board) lane(kind task.Kind) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inLane[kind]
}

// changed is closed when the list changes, a task ends or the drain begins.
func (b *board) changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watch == nil {
		b.watch = make(chan struct{})
	}
	return b.watch
}

// notify wakes the scheduler and who waits for changed. The caller holds mu.
func (b *board) notify() {
	wakeUp(b.wake)
	if b.watch != nil {
		close(b.watch)
		b.watch = nil
	}
}

// wakeUp leaves one signal in a channel with room for one.
func wakeUp(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
