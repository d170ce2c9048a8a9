package queue

import (
	"math"
	"slices"
	"time"
)

// Tick does what is due at the time now: delegates that were silent for too
// long are lost, offers and tasks whose time is up end, what is old is
// forgotten. Calling it early, late or twice does no harm.
func (q *Queue) Tick(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.instant(now)
	q.timers.approach(at)
	for len(q.timers.near) > 0 && q.timers.near[0].at <= at {
		t := q.timers.near[0]
		fire, late := t.fire, t.late
		q.disarm(t)
		if fire != nil {
			fire(now)
		} else {
			q.late(late, now)
		}
	}
}

// NextDeadline is when [Queue.Tick] is to be called next, at the latest: it may
// be before it has something to do. It is false when nothing is due ever.
func (q *Queue) NextDeadline() (time.Time, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.timers.next()
	return q.time(at), at != never
}

// Wake receives a value when [Queue.NextDeadline] has become earlier. It is for
// one reader.
func (q *Queue) Wake() <-chan struct{} { return q.wake }

// instant is a time as the queue keeps it, in nanoseconds from its start, by the
// monotonic clock where there is one. 0 is before the start: unset.
type instant int64

const never instant = math.MaxInt64

func (q *Queue) instant(t time.Time) instant { return instant(t.Sub(q.start)) }

// time is the zero time for an unset instant.
func (q *Queue) time(i instant) time.Time {
	if i == 0 {
		return time.Time{}
	}
	return q.start.Add(time.Duration(i))
}

// timer is something that is to happen at a time, unless it is disarmed.
type timer struct {
	at    instant
	fire  func(now time.Time)
	late  *work // without fire: whose wait is over; a function for each would be large
	index int   // in timers.near, from 1; in its bucket, from -1; 0 when not armed
}

func (t *timer) before(o *timer) bool { return t.at < o.at }
func (t *timer) place() *int          { return &t.index }

// arm sets or moves a timer. The caller holds mu.
func (q *Queue) arm(t *timer, at time.Time, fire func(now time.Time)) {
	before := q.timers.next()
	q.timers.move(t, q.instant(at))
	t.fire = fire
	if q.timers.next() < before {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// disarm takes a timer back, armed or not. The caller holds mu.
func (q *Queue) disarm(t *timer) {
	q.timers.remove(t)
	t.fire = nil // it holds on to what it would do
}

// timers are the armed ones. Nearly all that are far away are disarmed before
// they are due, like the queue time-outs of a million stages: they lie in
// buckets, in no order, until their time comes near.
type timers struct {
	near  order[*timer]
	edge  int64 // the first bucket that is far
	far   map[int64][]*timer
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
		for _, t := range h.far[h.slots[0]] {
			t.index = 0
			h.near.fix(t)
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
func (h *timers) move(t *timer, at instant) {
	slot := int64(at) >> bucketBits
	if slot < h.edge {
		if t.index < 0 {
			h.remove(t)
		}
		t.at = at
		h.near.fix(t)
		return
	}
	h.remove(t)
	t.at = at
	bucket, ok := h.far[slot]
	if !ok {
		i, _ := slices.BinarySearch(h.slots, slot)
		h.slots = slices.Insert(h.slots, i, slot)
	}
	h.far[slot] = append(bucket, t)
	t.index = -len(bucket) - 1
}

func (h *timers) remove(t *timer) {
	if t.index >= 0 {
		h.near.remove(t)
		return
	}
	slot := int64(t.at) >> bucketBits
	bucket := h.far[slot]
	last := len(bucket) - 1
	bucket[last].index, bucket[-t.index-1] = t.index, bucket[last]
	bucket[last], t.index = nil, 0
	if last > 0 {
		h.far[slot] = bucket[:last]
		return
	}
	delete(h.far, slot)
	i, _ := slices.BinarySearch(h.slots, slot)
	h.slots = slices.Delete(h.slots, i, i+1)
}
