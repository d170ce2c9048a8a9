package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// lease keeps a stage open between its tasks until the lease ends. The holder of the lease
// renews it.
type lease struct {
	Time time.Duration `json:"time"`
	Seq  uint64        `json:"seq"`
	Due  instant       `json:"due"`
	work *work
}

func (l *lease) deadline() *instant { return &l.Due }
func (l *lease) age() uint64        { return l.Seq }

func (l *lease) expire(q *Queue, now instant) {
	l.work.Lease = nil
	q.emit(LeaseEnded, now, l.work.first)
}

// dropLease ends the lease of a stage, if it has one.
func (q *Queue) dropLease(w *work) {
	if w.Lease != nil {
		q.disarm(w.Lease)
		w.Lease = nil
	}
}

// Renew begins the lease of a stage anew. It fails with [ErrUnknownWork], and with
// [ErrFinished] if the stage has no lease any more.
func (q *Queue) Renew(account, id string) error {
	defer q.unlock(q.lock())
	w, err := q.work(account, id)
	switch {
	case err != nil:
		return err
	case w.Lease == nil:
		return fmt.Errorf("%s has no lease: %w", id, ErrFinished)
	}
	q.arm(w.Lease, q.now().after(w.Lease.Time))
	return nil
}

// EndLease ends the lease of a stage without a [LeaseEnded] event. It changes nothing if
// the stage has no lease. EndLease fails with [ErrUnknownWork].
func (q *Queue) EndLease(account, id string) error {
	defer q.unlock(q.lock())
	w, err := q.work(account, id)
	if err == nil {
		q.dropLease(w)
	}
	return err
}

// Enlarge adds to the Size of a work. It fails with [ErrUnknownWork], and with
// [ErrFinished] if the work has ended.
func (q *Queue) Enlarge(account, id string, size int) error {
	defer q.unlock(q.lock())
	w, err := q.work(account, id)
	switch {
	case err != nil:
		return err
	case w.State == over:
		return ErrFinished
	}
	w.Size += size
	return nil
}

// strand reports the leased stages of a delegate that is gone, if they have no task that
// could report it and no peer that could continue. Stages whose tasks have not ended are
// reported by those.
func (q *Queue) strand(d *delegate, now instant, reason string) {
	var idle []*work
	for _, w := range d.slots {
		if w.Lease != nil && w.State == running && w.checkIdle() == nil && (&record{work: w, owner: d}).peer() == nil {
			idle = append(idle, w)
		}
	}
	slices.SortFunc(idle, func(a, b *work) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, w := range idle {
		e := w.first.event(Stranded, now)
		e.Delegate, e.Result = d.info.ID, Result{Outcome: Abandoned, Error: reason}
		q.events = append(q.events, e)
	}
}
