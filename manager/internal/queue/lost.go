package queue

import (
	"fmt"
	"time"
)

func (d *delegate) deadline() *instant { return &d.due }
func (d *delegate) age() uint64        { return d.order }

// expire marks a silent delegate as lost, and removes a lost one.
func (d *delegate) expire(q *Queue, now instant) {
	if d.lost {
		q.remove(d, now, fmt.Sprintf("the delegate %q was lost and has not come back", d.label()))
	} else {
		q.lose(d, now)
	}
}

// lose marks a delegate as lost. What it was offered goes to other delegates. What it
// has acquired ends as [Abandoned], except detached tasks, which wait for its return.
// The caller holds mu.
func (q *Queue) lose(d *delegate, now instant) {
	d.lost = true
	q.present--
	d.changeAbility()
	q.events = append(q.events, Event{Kind: Lost, At: now.time(), Account: d.account.id, Delegate: d.info.ID})
	q.withdraw(d, now)
	for _, r := range d.tasks() {
		if !r.detached {
			q.end(r, now, Result{Outcome: Abandoned, Error: d.absence()})
		}
	}
	q.arm(d, now.after(q.cfg.ForgetLost))
}

// Unregister removes a delegate. What it was offered goes to other delegates, what it
// has acquired ends as [Abandoned]. Unregister fails with [ErrUnknownDelegate].
func (q *Queue) Unregister(account, id string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, err := q.delegate(account, id)
	if err != nil {
		return err
	}
	q.remove(d, q.now(), fmt.Sprintf("the delegate %q has unregistered", d.label()))
	return nil
}

// remove drops a delegate that will not come back. The caller holds mu.
func (q *Queue) remove(d *delegate, now instant, reason string) {
	if !d.lost {
		q.present--
	}
	d.lost, d.removed = true, true
	q.disarm(d)
	delete(d.account.delegates, d.info.ID)
	d.setTags(nil)
	d.changeAbility()
	for _, w := range d.offered() {
		delete(d.open, w.first.id)
		q.requeue(w, now)
	}
	for _, r := range d.tasks() {
		delete(d.open, r.id)
		q.end(r, now, Result{Outcome: Abandoned, Error: reason})
	}
	clear(d.stops)
	d.wakePoll() // a held poll learns that the delegate is unknown
}

// absence explains why a lost delegate cannot do anything.
func (d *delegate) absence() string {
	if d.removed {
		return fmt.Sprintf("the delegate %q has unregistered", d.label())
	}
	return fmt.Sprintf("the delegate %q is lost: it has sent no heartbeat since %s", d.label(),
		d.seen.time().Format(time.RFC3339))
}
