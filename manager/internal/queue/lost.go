package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// lose marks a delegate that was silent for too long: what it was offered goes
// to others, what it had taken ends as [Abandoned], except the detached tasks,
// which wait for its return. The caller holds mu.
func (q *Queue) lose(d *delegate, now instant) {
	d.lost = true
	q.present--
	d.touch()
	q.events = append(q.events, Event{Kind: Lost, At: now.time(), Account: d.acc.id, Delegate: d.info.ID})
	q.withdraw(d, now)
	for _, r := range d.tasks() {
		if !r.detached {
			q.end(r, now, Result{Outcome: Abandoned, Error: d.absence()})
		}
	}
	q.arm(d, now.after(q.cfg.ForgetLost))
}

func (d *delegate) clock() *timer { return &d.timer }
func (d *delegate) age() uint64   { return d.order }

// due is what silence leads to, first to one and then to the other.
func (d *delegate) due(q *Queue, now instant) {
	if d.lost {
		q.remove(d, now, fmt.Sprintf("the delegate %q was lost and has not come back", d.label()))
	} else {
		q.lose(d, now)
	}
}

// remove drops a delegate that will not come back. The caller holds mu.
func (q *Queue) remove(d *delegate, now instant, reason string) {
	if !d.lost {
		q.present--
	}
	d.lost, d.removed = true, true
	q.disarm(d)
	delete(d.acc.delegates, d.info.ID)
	d.acc.hold(d, nil)
	d.acc.uncrew(d)
	for _, w := range d.offered() {
		delete(d.open, w.first.id)
		q.requeue(w, now)
	}
	for _, r := range d.tasks() {
		delete(d.open, r.id)
		q.end(r, now, Result{Outcome: Abandoned, Error: reason})
	}
	clear(d.stops)
	d.bump() // a held poll learns that it is unknown
}

// tasks are what the delegate was offered and has acquired, in the order of
// the offers.
func (d *delegate) tasks() []*record {
	out := make([]*record, 0, len(d.open))
	for _, r := range d.open {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *record) int { return cmp.Compare(a.seq, b.seq) })
	return out
}

// absence says why a delegate cannot do anything.
func (d *delegate) absence() string {
	if d.removed {
		return fmt.Sprintf("the delegate %q has unregistered", d.label())
	}
	return fmt.Sprintf("the delegate %q is lost: it has sent no heartbeat since %s", d.label(),
		d.seen.time().Format(time.RFC3339))
}
