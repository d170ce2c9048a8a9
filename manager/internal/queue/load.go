package queue

import (
	"bufio"
	"fmt"
	"io"
)

// Load replaces the state by what [Queue.Save] has written, after which the queue
// behaves as the saved one did. All that wait for a delegate's list or for a task's
// end are woken, to look again. Events that nobody has taken are dropped. When Load
// fails, nothing has changed; the error is [ErrVersion] when the form is one that
// this version does not know.
func (q *Queue) Load(r io.Reader) error {
	l := loader{
		q:            &Queue{cfg: q.cfg, wake: make(chan struct{}, 1)},
		recordReader: recordReader{r: bufio.NewReaderSize(r, 64<<10)},
		ended:        map[int]*work{},
	}
	if err := l.load(); err != nil {
		return fmt.Errorf("loading the queue: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.letGo()
	q.state, q.events = l.q.state, nil
	q.hurry(never)
	return nil
}

// letGo wakes all that wait for something. The caller holds mu.
func (q *Queue) letGo() {
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
	numbers map[uint64]*delegate
	ended   map[int]*work
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
	l.q.timers.approach(h.Last)
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
			a.parkFull()
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
	l.rearm(d, v.Due)
	return nil
}

// parkFull parks all lanes of which nothing can be given out.
func (a *account) parkFull() {
	for _, c := range a.classes {
		for n := range c.lanes {
			if g := c.full(); g != nil && n.first != nil && n.parked == nil {
				n.park(g)
			}
		}
	}
}

// rearm arms what was armed.
func (l *loader) rearm(o owner, due instant) {
	if due != 0 {
		l.q.arm(o, due)
	}
}

// owner finds a delegate by its number; 0 is nobody.
func (l *loader) owner(number uint64) (*delegate, error) {
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
	if w.d, err = l.owner(v.Delegate); err != nil {
		return err
	}
	a.works[w.ID] = w
	if v.State == over {
		w.Selectors, w.Variants = nil, nil
		l.ended[v.Ended] = w
	} else {
		a.join(w, &like, like.needs(nil))
		for i := range w.Variants {
			w.Variants[i].Types = w.class.variants[i].Types // one copy for all
		}
	}
	if err := w.check(); err != nil {
		return err
	}
	if err := l.tasks(w, &v); err != nil {
		return fmt.Errorf("%s: %w", w.ID, err)
	}
	switch {
	case w.state == waiting && w.first.state == idle:
		w.class.enter(w)
	case w.Stage && (w.state == given || w.state == running):
		w.class.count(1)
		if !w.d.removed {
			w.d.slots[w.ID] = w
		}
	}
	l.rearm(w, v.Due)
	return nil
}

// tasks reads what belongs to a work.
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
	if r.owner, err = l.owner(v.Owner); err != nil {
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
	r.work.acc.tasks[r.id] = r
	if r.state == offered || r.state == acquired {
		r.owner.open[r.id] = r
	}
	if v.Stop {
		r.owner.stops[r.id] = r
	}
	l.rearm(r, v.Due)
	return nil
}

// check finds what no queue has saved and what would break this one.
func (w *work) check() error {
	switch {
	case w.state > over,
		(w.state == given || w.state == running) == (w.d == nil) && w.state != over,
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
