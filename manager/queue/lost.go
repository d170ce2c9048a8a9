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
func (q *Queue) lose(d *delegate, now time.Time) {
	d.lost = true
	d.touch()
	q.events = append(q.events, Event{Kind: Lost, At: now, Account: d.acc.id, Delegate: d.info.ID})
	q.withdraw(d, now)
	for _, r := range d.tasks() {
		if !r.detached {
			q.end(r, now, Result{Outcome: Abandoned, Error: d.absence(true)})
		}
	}
	q.arm(&d.beat, now.Add(q.cfg.ForgetLost), func(now time.Time) {
		q.remove(d, now, fmt.Sprintf("the delegate %q was lost and has not come back", d.label()))
	})
}

// remove drops a delegate that will not come back. The caller holds mu.
func (q *Queue) remove(d *delegate, now time.Time, reason string) {
	d.lost = true // nothing is given to it meanwhile
	q.disarm(&d.beat)
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
func (d *delegate) absence(known bool) string {
	if !known {
		return fmt.Sprintf("the delegate %q has unregistered", d.label())
	}
	return fmt.Sprintf("the delegate %q is lost: it has sent no heartbeat since %s", d.label(),
		d.seen.UTC().Format(time.RFC3339))
}
