package queue

import (
	"container/heap"
	"time"
)

// Tick does what is due at the time now: delegates that were silent for too
// long are lost, offers and tasks whose time is up end, what is old is
// forgotten. Calling it early, late or twice does no harm.
func (q *Queue) Tick(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.timers) > 0 && !q.timers[0].at.After(now) {
		t := q.timers[0]
		fire := t.fire
		q.disarm(t)
		fire(now)
	}
}

// NextDeadline is when [Queue.Tick] has something to do next; false when
// nothing is due ever.
func (q *Queue) NextDeadline() (time.Time, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.timers) == 0 {
		return time.Time{}, false
	}
	return q.timers[0].at, true
}

// Wake receives a value when [Queue.NextDeadline] has become earlier. It is for
// one reader.
func (q *Queue) Wake() <-chan struct{} { return q.wake }

// timer is something that is to happen at a time, unless it is disarmed.
type timer struct {
	at    time.Time
	fire  func(now time.Time)
	index int // in the heap, plus one; 0 when it is not armed
}

// arm sets or moves a timer. The caller holds mu.
func (q *Queue) arm(t *timer, at time.Time, fire func(now time.Time)) {
	first := len(q.timers) == 0 || at.Before(q.timers[0].at)
	t.at, t.fire = at, fire
	if t.index == 0 {
		heap.Push(&q.timers, t)
	} else {
		heap.Fix(&q.timers, t.index-1)
	}
	if first {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// disarm takes a timer back, armed or not. The caller holds mu.
func (q *Queue) disarm(t *timer) {
	if t.index != 0 {
		heap.Remove(&q.timers, t.index-1)
		t.fire = nil // it holds on to what it would do
	}
}

// timers is a heap, the earliest first.
type timers []*timer

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *timers) Push(x any) {
	t := x.(*timer)
	*h = append(*h, t)
	t.index = len(*h)
}

func (h *timers) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = 0
	return t
}
