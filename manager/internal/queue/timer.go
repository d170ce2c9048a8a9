package queue

import (
	"math"
	"slices"
	"time"
)

// Tick does what is due at the time now: delegates that were silent for too
// long are lost, offers and tasks whose time is up end, what is old is
// forgotten. What is due at the same instant happens in the order in which it
// came to be. Calling it early, late or twice does no harm.
func (q *Queue) Tick(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.reach(now)
	for len(q.timers.near) > 0 && q.timers.near[0].at <= at {
		first := q.timers.near[0].of
		q.disarm(first)
		first.due(q, at)
	}
}

// NextDeadline is when [Queue.Tick] is to be called next, at the latest: it may
// be before it has something to do. It is false when nothing is due ever.
func (q *Queue) NextDeadline() (time.Time, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.next()
	return at.time(), at != never
}

// next is the next deadline. The caller holds mu.
func (q *Queue) next() instant { return min(q.timers.next(), q.pulse()) }

// Wake receives a value when [Queue.NextDeadline] has become earlier. It is for
// one reader.
func (q *Queue) Wake() <-chan struct{} { return q.wake }

// instant is a time as the queue keeps it, in nanoseconds since 1970, the same in
// every process. 0 is unset.
type instant int64

const never instant = math.MaxInt64

// moment is the instant of a time; those out of reach are the nearest one.
func moment(t time.Time) instant {
	switch s := t.Unix(); {
	case s < 0:
		return 1
	case s >= int64(never/1e9):
		return never - 1
	}
	return max(1, instant(t.UnixNano()))
}

// after is the instant a while later.
func (i instant) after(d time.Duration) instant {
	if instant(d) >= never-i {
		return never
	}
	return i + instant(d)
}

// time is the zero time for an unset instant.
func (i instant) time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// now is the time of an operation. The caller holds mu and calls it once.
func (q *Queue) now() instant { return q.reach(q.cfg.Now()) }

// reach makes a time that of an operation, which is never before that of an
// earlier one. The caller holds mu.
func (q *Queue) reach(t time.Time) instant {
	before := q.last
	q.last = max(q.last, moment(t))
	q.timers.approach(q.last)
	if q.cfg.Gap > 0 && q.last > before.after(q.cfg.Gap) {
		q.bridge(q.last)
	}
	return q.last
}

// owner is what something happens to at a time: a delegate, a stage or single
// task, a task. What it is follows from its state, so that a saved queue does the
// same.
type owner interface {
	clock() *timer
	// age is its number in the queue's order of things, of which each has its own.
	age() uint64
	due(q *Queue, now instant)
}

// timer is when something happens to its owner.
type timer struct {
	at    instant
	index int // in timers.near, from 1; in its bucket, from -1; 0 when not armed
}

func (t *timer) armed() bool { return t.index != 0 }

// alarm is an armed timer.
type alarm struct {
	at    instant
	timer *timer
	of    owner
}

func (a alarm) before(o alarm) bool {
	if a.at != o.at {
		return a.at < o.at
	}
	return a.of.age() < o.of.age()
}

func (a alarm) place() *int { return &a.timer.index }

// arm sets or moves a timer. The caller holds mu.
func (q *Queue) arm(o owner, at instant) {
	if at == never {
		q.disarm(o)
		return
	}
	before := q.next()
	if _, ok := o.(*record); ok && !o.clock().armed() {
		q.answers++
	}
	q.timers.move(o, at)
	q.hurry(before)
}

// hurry tells the owner that something is due before what was due first. The
// caller holds mu.
func (q *Queue) hurry(before instant) {
	if q.next() < before {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// disarm takes a timer back, armed or not. The caller holds mu.
func (q *Queue) disarm(o owner) {
	if _, ok := o.(*record); ok && o.clock().armed() {
		q.answers--
	}
	q.timers.remove(o)
}

// timers are the armed ones. Nearly all that are far away are disarmed before
// they are due, like the queue time-outs of a million stages: they lie in
// buckets, in no order, until their time comes near.
type timers struct {
	near  order[alarm]
	edge  int64 // the first bucket that is far
	far   map[int64][]owner
	slots []int64 // the buckets of far, ascending
}

const (
	bucketBits = 36 // nanoseconds: about 69 seconds to a bucket
	nearby     = 4  // buckets that are near
)

// approach makes near what is.
func (h *timers) approach(now instant) {
	h.edge = max(h.edge, int64(now)>>bucketBits+nearby)
	for len(h.slots) > 0 && h.slots[0] < h.edge {
		for _, o := range h.far[h.slots[0]] {
			t := o.clock()
			t.index = 0
			h.near.fix(alarm{t.at, t, o})
		}
		delete(h.far, h.slots[0])
		h.slots = slices.Delete(h.slots, 0, 1)
	}
}

// next is when something is due or comes near.
func (h *timers) next() instant {
	at := never
	if len(h.slots) > 0 {
		at = instant(h.slots[0]) << bucketBits // it is near long before
	}
	if len(h.near) > 0 {
		at = min(at, h.near[0].at)
	}
	return at
}

// move arms a timer for another time, or at all.
func (h *timers) move(o owner, at instant) {
	slot, t := int64(at)>>bucketBits, o.clock()
	if slot < h.edge {
		if t.index < 0 {
			h.remove(o)
		}
		t.at = at
		h.near.fix(alarm{at, t, o})
		return
	}
	h.remove(o)
	t.at = at
	bucket, ok := h.far[slot]
	if !ok {
		i, _ := slices.BinarySearch(h.slots, slot)
		h.slots = slices.Insert(h.slots, i, slot)
	}
	h.far[slot] = append(bucket, o)
	t.index = -len(bucket) - 1
}

func (h *timers) remove(o owner) {
	t := o.clock()
	if t.index >= 0 {
		h.near.remove(alarm{t.at, t, o})
		return
	}
	slot := int64(t.at) >> bucketBits
	bucket := h.far[slot]
	last := len(bucket) - 1
	bucket[last].clock().index, bucket[-t.index-1] = t.index, bucket[last]
	bucket[last], t.index = nil, 0
	if last > 0 {
		h.far[slot] = bucket[:last]
		return
	}
	delete(h.far, slot)
	i, _ := slices.BinarySearch(h.slots, slot)
	h.slots = slices.Delete(h.slots, i, i+1)
}
