package queue

import (
	"bufio"
	"fmt"
	"io"
)

// Load replaces the state with what [Queue.Save] has written. The queue then behaves as
// the saved one. Load wakes all callers that wait for a change of a delegate's list or
// for the end of a task, and drops events that the reader has not taken. If Load fails,
// nothing has changed. It fails with [ErrVersion] if a newer version of this package has
// saved the queue.
func (q *Queue) Load(r io.Reader) error {
	l := loader{
		q:            &Queue{cfg: q.cfg, wake: make(chan struct{}, 1), decider: q.decider},
		recordReader: recordReader{r: bufio.NewReaderSize(r, 64<<10)},
		ended:        map[int]*work{},
	}
	if err := l.load(); err != nil {
		return fmt.Errorf("loading the queue: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeAll()
	q.state, q.events = l.q.state, nil
	q.wakeBefore(never)
	return nil
}

// wakeAll wakes all callers that wait for something. The caller holds mu.
func (q *Queue) wakeAll() {
	for _, a := range q.accounts {
		for _, d := range a.delegates {
			if d.changed != nil {
				close(d.changed)
			}
		}
		for _, r := range a.tasks {
			if r.over != nil && r.state != done {
				close(r.over)
			}
		}
	}
}

// loader loads a queue.
type loader struct {
	q *Queue // the new one
	recordReader
	numbers map[uint64]*delegate // of the account, by order
	ended   map[int]*work        // by the order in which they ended
}

func (l *loader) load() error {
	var h savedHeader
	if err := l.json(recordHeader, &h); err != nil {
		return err
	}
	if h.Version != savedVersion {
		return fmt.Errorf("form %d: %w", h.Version, ErrVersion)
	}
	l.q.state = newState(h.Epoch)
	l.q.last, l.q.seq = h.Last, h.Seq
	for {
		kind, err := l.next()
		if err != nil {
			return err
		}
		if kind == recordEnd {
			break
		}
		if err := l.account(); err != nil {
			return err
		}
	}
	for i := range len(l.ended) {
		w := l.ended[i+1]
		if w == nil {
			return fmt.Errorf("the stage or task that was the %d. to end is missing", i+1)
		}
		l.q.finished = append(l.q.finished, w)
		l.q.kept++
		l.q.bytes += w.size
	}
	_, err := l.bytes(recordEnd)
	return err
}

func (l *loader) account() error {
	var v savedAccount
	if err := l.json(recordAccount, &v); err != nil {
		return err
	}
	a := l.q.account(v.ID)
	a.gate.closed = v.Paused
	for name, n := range v.Limits {
		a.group(name).max = n
	}
	l.numbers = map[uint64]*delegate{}
	for {
		kind, err := l.next()
		if err != nil {
			return err
		}
		switch kind {
		case recordDelegate:
			err = l.delegate(a)
		case recordWork:
			err = l.work(a)
		default:
			a.blockFull()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *loader) delegate(a *account) error {
	var v savedDelegate
	if err := l.json(recordDelegate, &v); err != nil {
		return err
	}
	d := newDelegate(a, v.Order)
	d.max, d.drained, d.lost, d.removed = v.Max, v.Drained, v.Lost, v.Removed
	d.registered, d.seen, d.idleSince, d.version = v.Registered, v.Seen, v.Idle, v.Version
	l.numbers[v.Order] = d
	r := Registration{
		ID: v.ID, Name: v.Name, HostName: v.HostName, Type: v.Type, Version: v.Runs,
		Tags: v.Tags, Types: v.Types, Draining: v.Draining,
	}
	if d.removed {
		d.info = r
		return nil
	}
	a.delegates[v.ID] = d
	if !d.lost {
		l.q.present++
	}
	d.describe(r)
	l.arm(d, v.Due)
	return nil
}

// blockFull lets all requirements that are blocked wait for their group. A queue that
// was not saved does so when a decision finds them; what it decides is the same.
func (a *account) blockFull() {
	for _, r := range a.requirements {
		if g := r.fullGroup(); g != nil && r.entry.requirement != nil && r.blocked == nil {
			r.block(g)
		}
	}
}

// arm sets the deadline that was saved.
func (l *loader) arm(t timed, at instant) {
	if at != 0 {
		l.q.arm(t, at)
	}
}

// find returns the delegate with a number, nil for 0.
func (l *loader) find(number uint64) (*delegate, error) {
	d := l.numbers[number]
	if d == nil && number != 0 {
		return nil, fmt.Errorf("delegate %d is missing", number)
	}
	return d, nil
}

func (l *loader) work(a *account) error {
	var v savedWork
	err := l.json(recordWork, &v)
	if err != nil {
		return err
	}
	like := Work{
		ID: v.ID, Stage: v.Stage, Priority: v.Priority, Selectors: v.Selectors, Groups: v.Groups,
		QueueTimeout: v.QueueTimeout, RunTimeout: v.RunTimeout,
	}
	for _, types := range v.Types {
		like.Variants = append(like.Variants, Variant{Types: types})
	}
	w := newWork(&like, a)
	w.seq, w.state, w.variant, w.size, w.was = v.Seq, v.State, v.Variant, v.Size, v.Was
	w.notBefore = v.NotBefore
	if w.delegate, err = l.find(v.Delegate); err != nil {
		return err
	}
	a.works[w.ID] = w
	if v.State == over {
		w.Selectors, w.Variants = nil, nil
		l.ended[v.Ended] = w
	} else {
		a.join(w, &like, like.appendKey(nil, w.refusals()))
		for i := range w.Variants {
			w.Variants[i].Types = w.requirement.variants[i].Types // one copy for all
		}
	}
	if err := w.check(); err != nil {
		return err
	}
	if err := l.tasks(w, &v); err != nil {
		return fmt.Errorf("%s: %w", w.ID, err)
	}
	switch {
	case w.state == pending && w.first.state == idle:
		w.requirement.enqueue(w)
	case w.Stage && (w.state == given || w.state == running):
		w.requirement.use(1)
		if !w.delegate.removed {
			w.delegate.slots[w.ID] = w
		}
	}
	l.arm(w, v.Due)
	return nil
}

// tasks reads the bodies and the tasks of a work.
func (l *loader) tasks(w *work, v *savedWork) error {
	if !v.Bodies {
		w.Variants = nil
	}
	for i := range w.Variants {
		t, err := l.body()
		if err != nil {
			return err
		}
		w.Variants[i].Task = t
	}
	for i := range v.Tasks {
		r := w.first
		if i > 0 {
			r = &record{work: w}
			w.more = append(w.more, r)
		}
		if err := l.task(r); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) task(r *record) error {
	var v savedTask
	err := l.json(recordTask, &v)
	if err != nil {
		return err
	}
	r.id, r.seq, r.state = v.ID, v.Seq, v.State
	r.detached, r.half, r.stopping, r.answered = v.Detached, v.Half, v.Stopping, v.Answered
	r.former = v.Former
	r.submitted, r.offered, r.acquired, r.ended = v.Submitted, v.Offered, v.Acquired, v.Ended
	if r.owner, err = l.find(v.Owner); err != nil {
		return err
	}
	if v.Body {
		r.body, err = l.body()
	} else if r.shared() {
		r.body = r.work.Variants[r.work.variant].Task
		r.id = r.body.ID // one copy
	}
	if err != nil {
		return err
	}
	if v.End != nil {
		r.end = &ending{v.End.Kind, Result{Outcome: v.End.Outcome, Error: v.End.Error, Code: v.End.Code}}
		if v.End.Data {
			if r.end.result.Data, err = l.data(); err != nil {
				return err
			}
		}
	}
	if err := r.check(); err != nil {
		return err
	}
	r.work.account.tasks[r.id] = r
	if r.state == offered || r.state == acquired {
		r.owner.open[r.id] = r
	}
	if v.Stop {
		r.owner.stops[r.id] = r
	}
	l.arm(r, v.Due)
	return nil
}

// check rejects states that no queue saves and that would break this one.
func (w *work) check() error {
	switch {
	case w.state > over,
		(w.state == given || w.state == running) == (w.delegate == nil) && w.state != over,
		len(w.Variants) == 0 && w.state != over,
		w.variant < 0, int(w.variant) >= max(1, len(w.Variants)) && w.state != over:
		return fmt.Errorf("%s is in no state that a stage or task can have", w.ID)
	}
	return nil
}

func (r *record) check() error {
	switch {
	case r.state > done,
		(r.state == offered || r.state == acquired) && r.owner == nil,
		r.state == done && r.end == nil,
		r.state != done && r.body == nil,
		r != r.work.first && r.state == idle:
		return fmt.Errorf("%s is in no state that a task can have", r.id)
	}
	return nil
}
