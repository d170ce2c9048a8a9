package queue

import (
	"fmt"
	"time"
)

// Retry puts a stage that has begun back to where it waited, to begin anew with
// another first task, not before a time; the zero time is at once. Its tasks must
// have ended, except detached ones, and it must not have been released. Its slot
// and its room in its groups are free, its age is the old one, its QueueTimeout and
// its RunTimeout start anew. Delegates that had it before, or were offered it, get
// it only when no other one is free for it.
//
// It fails with [ErrUnknownWork], with [ErrFinished], also for a single task, and
// with [ErrExists] when the account has a task with the new one's id.
func (q *Queue) Retry(account, id string, variants []Variant, notBefore time.Time) error {
	if err := check(variants); err != nil {
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
	case w.acc.tasks[first.ID] != nil:
		return fmt.Errorf("%s: %w", first.ID, ErrExists)
	}
	if err := w.idle(); err != nil {
		return fmt.Errorf("retrying %s: %w", id, err)
	}
	now, d := q.now(), w.d
	left := q.leave(w, now)
	for id := range w.was {
		w.was[id] = missed // who handed it back may have it again
	}
	w.reclass(variants)
	w.postpone(notBefore)
	w.first.former = true
	w.more = append(w.more, w.first)
	w.first, w.Variants, w.variant = &record{work: w}, variants, 0
	q.enlist(w.first, first, now)
	q.wait(w, now)
	q.again(w, d, left, now)
	return nil
}

// leave takes a stage from its delegate, if it has one, and returns the groups that
// have more room now. The caller holds mu.
func (q *Queue) leave(w *work, now instant) []*group {
	d := w.d
	if d == nil {
		return nil
	}
	delete(d.slots, w.ID)
	d.idleSince = now
	d.touch()
	w.note(d, missed)
	w.class.count(-1)
	return w.class.groups
}

// reclass makes a stage a member of the class that other variants need.
func (w *work) reclass(variants []Variant) {
	old := w.class
	like := Work{Stage: true, Selectors: *w.Selectors, Groups: old.groupNames(), Variants: variants}
	w.acc.join(w, &like, like.needs(nil))
	w.acc.quit(old)
}
