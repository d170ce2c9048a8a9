package queue

import (
	"bufio"
	"fmt"
	"io"
)

// Load replaces the state with one that [Queue.Save] has written. The queue then behaves
// as the saved one. Load wakes all callers that wait for a change of a delegate's list or
// for the end of a task, and drops events that the reader has not taken. If Load fails,
// nothing has changed. It fails with [ErrVersion] if a newer version of this package has
// saved the queue.
func (q *Queue) Load(r io.Reader) error {
	l := loader{q: New(q.cfg), recordReader: recordReader{r: bufio.NewReaderSize(r, 64<<10)}}
	if l.load(); l.err != nil {
		return fmt.Errorf("loading the queue: %w", l.err)
	}
	defer q.unlock(q.lock())
	for _, a := range q.accounts {
		for _, d := range a.delegates {
			d.wakePoll()
		}
		for _, r := range a.tasks {
			if r.over != nil && r.State != done {
				close(r.over)
			}
		}
	}
	q.state, q.events = l.q.state, nil
	return nil
}

// loader loads a queue. After an error it reads nothing.
type loader struct {
	recordReader
	q       *Queue // the new one
	account *account
	numbers map[uint64]*delegate // of the account, by order
}

func (l *loader) load() {
	var h savedHeader
	if l.json(recordHeader, &h); h.Version != savedVersion {
		l.fail(fmt.Errorf("form %d: %w", h.Version, ErrVersion))
		return
	}
	l.q.state = newState(h.Epoch)
	l.q.last, l.q.seq = h.Last, h.Seq
	for l.err == nil {
		switch kind := l.next(); {
		case kind == recordAccount:
			l.loadAccount()
		case kind == recordDelegate && l.account != nil:
			l.loadDelegate()
		case kind == recordWork && l.account != nil:
			l.loadWork()
		default:
			l.bytes(recordEnd)
			l.finish()
			return
		}
	}
}

// finish checks and completes the state after all entities are loaded.
func (l *loader) finish() {
	for w := range l.q.finished.all() {
		if l.q.ends++; w.Ended != l.q.ends {
			l.fail(fmt.Errorf("the stage or task that was the %d. to end is missing", l.q.ends))
		}
	}
	// Let all blocked requirements wait for their group. The saved queue did so only when a
	// decision found them blocked. Both queues make the same decisions.
	for _, a := range l.q.accounts {
		for _, r := range a.requirements {
			if g := r.fullGroup(); g != nil && r.tag != nil {
				r.move(g)
			}
		}
	}
}

func (l *loader) loadAccount() {
	var v savedAccount
	l.json(recordAccount, &v)
	l.account, l.numbers = l.q.account(v.ID), map[uint64]*delegate{}
	l.account.gate.closed, l.account.gate.note = v.Paused, v.Note
	for name, n := range v.Limits {
		l.account.group(name).max = n
	}
}

func (l *loader) loadDelegate() {
	var v savedDelegate
	l.json(recordDelegate, &v)
	d := newDelegate(l.account, v.delegateFacts)
	l.numbers[v.Order] = d
	if d.info = Registration(v.savedRegistration); d.Removed {
		return
	}
	l.account.delegates[v.ID] = d
	if !d.Lost {
		l.q.present++
	}
	d.describe(d.info)
	l.arm(d)
}

// arm sets a deadline that was saved.
func (l *loader) arm(t timed) {
	at := *t.deadline()
	if *t.deadline() = 0; at != 0 {
		l.q.arm(t, at)
	}
}

// find returns the delegate with a number, nil for 0.
func (l *loader) find(number uint64) *delegate {
	d := l.numbers[number]
	if d == nil && number != 0 {
		l.fail(fmt.Errorf("delegate %d is missing", number))
	}
	return d
}

func (l *loader) loadWork() {
	var v savedWork
	l.json(recordWork, &v)
	w := newWork(v.workFacts, l.account)
	if w.Lease != nil {
		w.Lease.work = w
		if w.State == over || w.Lease.Time <= 0 || w.Lease.Due == 0 {
			l.fail(fmt.Errorf("%s has a lease that no stage can have", w.ID))
			return
		}
	}
	w.delegate = l.find(v.Delegate)
	for _, types := range v.Types {
		w.Variants = append(w.Variants, Variant{Types: types})
	}
	if !w.valid() {
		l.fail(fmt.Errorf("%s is in no state that a stage or task can have", w.ID))
	}
	if l.err != nil {
		return
	}
	l.account.works[w.ID] = w
	if w.State == over {
		l.q.list(w)
	} else {
		asks := needOf(&Work{Stage: w.Stage, Selectors: w.Selectors, Groups: v.Groups, Variants: w.Variants})
		asks.refused = w.refusals()
		l.account.join(w, asks, asks.key())
	}
	if !v.Bodies {
		w.Variants = nil
	}
	for i := range w.Variants {
		w.Variants[i].Task = l.body()
	}
	l.loadTask(w.first)
	for i := 1; i < v.Tasks && l.err == nil; i++ {
		r := &record{work: w}
		w.more = append(w.more, r)
		l.loadTask(r)
	}
	switch {
	case l.err != nil:
		return
	case w.State == pending && w.first.State == idle:
		w.enqueue()
	case w.Stage && (w.State == given || w.State == running):
		w.requirement.use(1)
		if !w.delegate.Removed {
			w.delegate.slots[w.ID] = w
		}
	}
	l.arm(w)
	if w.Lease != nil {
		l.arm(w.Lease)
	}
}

func (l *loader) loadTask(r *record) {
	var v savedTask
	l.json(recordTask, &v)
	r.taskFacts, r.end, r.owner = v.taskFacts, v.End, l.find(v.Owner)
	if v.Body {
		r.body = l.body()
	} else if r.shared() {
		r.body = r.work.Variants[r.work.Variant].Task
	}
	if r.end != nil && r.end.HasData {
		r.end.Data = l.data()
	}
	if !r.valid() {
		l.fail(fmt.Errorf("%s is in no state that a task can have", r.ID))
	}
	if l.err != nil {
		return
	}
	l.account.tasks[r.ID] = r
	if r.State == offered || r.State == acquired {
		r.owner.open[r.ID] = r
	}
	if v.Stop && r.owner != nil {
		r.owner.stops[r.ID] = r
	}
	l.arm(r)
}

// valid rejects states that no queue saves and that would break this one.
func (w *work) valid() bool {
	held, ended := w.State == given || w.State == running, w.State == over
	return w.State <= over && w.Variant >= 0 && (ended || held == (w.delegate != nil) && int(w.Variant) < len(w.Variants))
}

// valid rejects states that no queue saves and that would break this one.
func (r *record) valid() bool {
	held, ended := r.State == offered || r.State == acquired, r.State == done
	return r.State <= done && (!held || r.owner != nil) && (ended && r.end != nil || !ended && r.body != nil) &&
		(r == r.work.first || r.State != idle)
}
