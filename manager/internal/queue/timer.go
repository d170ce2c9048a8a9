package queue

import (
	"math"
	"time"
)

// Tick does what is due at the time now: it marks silent delegates as lost, ends
// offers and tasks whose time is up, and forgets what has ended long ago. Of what is
// due at the same time, the older comes first. A Tick that comes early, late or twice
// does no harm.
func (q *Queue) Tick(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.reach(now)
	for first, ok := q.timers.first(); ok && first.at <= at; first, ok = q.timers.first() {
		q.disarm(first.of)
		first.of.expire(q, at)
	}
}

// NextDeadline returns the latest time for the next [Queue.Tick], which may have
// nothing to do then. It returns false when nothing will ever be due.
func (q *Queue) NextDeadline() (time.Time, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.nextDeadline()
	return at.time(), at != never
}

func (q *Queue) nextDeadline() instant {
	at := q.pulse()
	if first, ok := q.timers.first(); ok {
		at = min(at, first.at)
	}
	return at
}

// Wake receives a value when [Queue.NextDeadline] has become earlier. It is for
// one reader.
func (q *Queue) Wake() <-chan struct{} { return q.wake }

// instant is a time in nanoseconds since 1970, the same in every process. 0 is unset.
type instant int64

const never instant = math.MaxInt64

// moment converts a time. A time out of range becomes the nearest one in range.
func moment(t time.Time) instant {
	switch s := t.Unix(); {
	case s < 0:
		return 1
	case s >= int64(never/1e9):
		return never - 1
	}
	return max(1, instant(t.UnixNano()))
}

func (i instant) after(d time.Duration) instant {
	if instant(d) >= never-i {
		return never
	}
	return i + instant(d)
}

// time converts an instant. The zero time is an unset one.
func (i instant) time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// now returns the time of an operation, which calls it once. The caller holds mu.
func (q *Queue) now() instant { return q.reach(q.cfg.Now()) }

// reach makes t the time of an operation: not before that of the previous one. The
// caller holds mu.
func (q *Queue) reach(t time.Time) instant {
	previous := q.last
	q.last = max(q.last, moment(t))
	if q.cfg.Gap > 0 && q.last > previous.after(q.cfg.Gap) {
		q.bridgeGap(q.last)
	}
	return q.last
}

// timed is a delegate, a work or a task: something happens to it at a deadline. What
// that is depends on its state alone, so that a saved queue does the same.
type timed interface {
	// deadline is when something happens, 0 for never.
	deadline() *instant
	// age is a number that is unique in the queue and does not change while the
	// deadline is set.
	age() uint64
	// expire does what is due at the deadline.
	expire(q *Queue, now instant)
}

// alarm is a deadline that is set.
type alarm struct {
	at  instant
	age uint64
	of  timed
}

func (a alarm) before(o alarm) bool { return a.at < o.at || a.at == o.at && a.age < o.age }

// arm sets or moves a deadline. The caller holds mu.
func (q *Queue) arm(t timed, at instant) {
	before := q.nextDeadline()
	q.disarm(t)
	if at != never {
		*t.deadline() = at
		q.timers.insert(alarm{at, t.age(), t})
		if _, ok := t.(*record); ok {
			q.answers++
		}
	}
	q.wakeBefore(before)
}

// disarm removes a deadline, set or not. The caller holds mu.
func (q *Queue) disarm(t timed) {
	at := t.deadline()
	if *at == 0 {
		return
	}
	q.timers.remove(alarm{*at, t.age(), t})
	*at = 0
	if _, ok := t.(*record); ok {
		q.answers--
	}
}

// wakeBefore tells the reader of Wake when the next deadline is before the previous
// one. The caller holds mu.
func (q *Queue) wakeBefore(previous instant) {
	if q.nextDeadline() < previous {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}
