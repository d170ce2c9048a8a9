package queue

import (
	"math"
	"time"
)

// Tick executes all deadlines up to the time now: it marks silent delegates as lost, ends
// offers and tasks whose time is up, and forgets works that ended long ago. Of two equal
// deadlines, the older entity comes first. A Tick may come early, late or twice.
func (q *Queue) Tick(now time.Time) {
	defer q.unlock(q.lock())
	at := q.reach(now)
	for first, ok := q.timers.first(); ok && first.at <= at; first, ok = q.timers.first() {
		q.disarm(first.of)
		first.of.expire(q, at)
	}
}

// NextDeadline returns the latest time for the next [Queue.Tick], which may have
// nothing to do then. It returns false when nothing will ever be due.
func (q *Queue) NextDeadline() (time.Time, bool) {
	defer q.unlock(q.lock())
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

// now returns the time of an operation, which calls it once.
func (q *Queue) now() instant { return q.reach(q.cfg.Now()) }

// reach makes t the time of an operation, but not a time before the previous operation.
func (q *Queue) reach(t time.Time) instant {
	previous := q.last
	q.last = max(q.last, moment(t))
	if q.cfg.Gap > 0 && q.last > previous.after(q.cfg.Gap) {
		q.bridgeGap(q.last)
	}
	return q.last
}

// timed is a delegate, a work or a task with a deadline. The effect of the deadline depends
// on its state alone, so that a saved queue does the same.
type timed interface {
	// deadline is the time at which it expires, 0 for never.
	deadline() *instant
	// age is a number that is unique in the queue and does not change while the
	// deadline is set.
	age() uint64
	// expire has the effect of the deadline.
	expire(q *Queue, now instant)
}

// alarm is a deadline that is set.
type alarm struct {
	at  instant
	age uint64
	of  timed
}

func (a alarm) before(o alarm) bool { return a.at < o.at || a.at == o.at && a.age < o.age }

// arm sets or moves a deadline.
func (q *Queue) arm(t timed, at instant) {
	q.disarm(t)
	if at == never {
		return
	}
	*t.deadline() = at
	q.timers.insert(alarm{at, t.age(), t})
	q.countAwaited(t, 1)
}

// disarm removes a deadline, set or not.
func (q *Queue) disarm(t timed) {
	at := t.deadline()
	if *at == 0 {
		return
	}
	q.timers.remove(alarm{*at, t.age(), t})
	*at = 0
	q.countAwaited(t, -1)
}

// countAwaited counts the deadlines of answers and of leases.
func (q *Queue) countAwaited(t timed, change int) {
	switch t.(type) {
	case *record, *lease:
		q.awaited += change
	}
}

// Gaps. While the process of the queue is stopped, or the log of its operations is
// away, the messages of delegates do not arrive. Afterwards all deadlines would expire at
// once: every delegate lost, every task abandoned. So the first operation after [Config.Gap]
// without one extends these deadlines to at least the following time from then:
//
//	a heartbeat                         HeartbeatTimeout
//	the acquisition of an offer         AcquireTimeout
//	an answer, to an abort too          the longer of HeartbeatTimeout and AnswerGrace
//	a renewal of a lease                the whole lease
//
// Other times do not change: the time-outs of works in the queue, the time-outs of
// stages that run, and the times at which the queue forgets works and delegates.
//
// A queue without calls must have no gap. So while something waits for a delegate,
// [Queue.NextDeadline] is at most a third of Gap after the last operation.

// bridgeGap gives delegates and holders of leases more time.
func (q *Queue) bridgeGap(now instant) {
	answer := max(q.cfg.HeartbeatTimeout, q.cfg.AnswerGrace)
	for _, a := range q.accounts { // in any order: the timers know theirs
		for _, w := range a.works {
			if w.Lease != nil {
				q.extend(w.Lease, now.after(w.Lease.Time))
			}
		}
		for _, d := range a.delegates {
			if !d.Lost {
				q.extend(d, now.after(q.cfg.HeartbeatTimeout))
			}
			for _, r := range d.open {
				if r.Due != 0 {
					q.extend(r, now.after(answer))
				}
				if w := r.work; w.State == given && r == w.first {
					q.extend(w, min(now.after(q.cfg.AcquireTimeout), w.queueDeadline()))
				}
			}
		}
	}
}

// extend moves a deadline, unless it is later already.
func (q *Queue) extend(t timed, at instant) {
	if *t.deadline() < at {
		q.arm(t, at)
	}
}

// pulse returns the latest time of the next operation that prevents a gap.
func (q *Queue) pulse() instant {
	if q.cfg.Gap <= 0 || q.present+q.awaited == 0 {
		return never
	}
	return q.last.after(max(q.cfg.Gap/3, 1))
}
