package queue

import (
	"fmt"
	"time"
)

// Retry puts a stage that has begun back to its old place in the queue, with another
// first task. No delegate gets it before notBefore; the zero time is at once. The
// tasks of the stage must have ended, except detached ones, and the stage must not
// have been released.
//
// The stage leaves its slot and its room in its groups. It keeps its age; its
// QueueTimeout and its RunTimeout begin again. Delegates that had the stage, or that
// it was offered to, get it only if no other one is free for it.
//
// Retry fails with [ErrUnknownWork], with [ErrFinished], also for a single task, and
// with [ErrExists] if a task of the account has the id of the new one.
func (q *Queue) Retry(account, id string, variants []Variant, notBefore time.Time) error {
	if err := checkVariants(variants); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	w, err := q.work(account, id)
	if err != nil {
		return err
	}
	first := variants[0].Task
	switch {
	case !w.Stage:
		return fmt.Errorf("%s is a single task: %w", id, ErrFinished)
	case w.state == over:
		return ErrFinished
	case w.account.tasks[first.ID] != nil:
		return fmt.Errorf("%s: %w", first.ID, ErrExists)
	}
	if err := w.checkIdle(); err != nil {
		return fmt.Errorf("retrying %s: %w", id, err)
	}
	now, d := q.now(), w.delegate
	groups := w.leaveDelegate(now)
	for id := range w.was {
		w.was[id] = missed // a delegate that refused the stage may have it again
	}
	w.rejoin(variants)
	w.postpone(notBefore)
	w.first.former = true
	w.more = append(w.more, w.first)
	w.first, w.Variants, w.variant = &record{work: w}, variants, 0
	q.addTask(w.first, first, now)
	q.wait(w, now)
	q.dispatch(w, d, groups, now)
	return nil
}

// leaveDelegate takes a stage from its delegate, if it has one, and returns the groups
// that have more room now.
func (w *work) leaveDelegate(now instant) []*group {
	d := w.delegate
	if d == nil {
		return nil
	}
	delete(d.slots, w.ID)
	d.idleSince = now
	d.touch()
	w.note(d, missed)
	w.requirement.use(-1)
	return w.requirement.groups
}
