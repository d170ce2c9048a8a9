package queuetest

import (
	"sync"
	"time"
)

// clock is a time that jumps, for one manager at a time.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	alarms map[chan time.Time]time.Time
	armed  chan struct{} // has a value when an alarm was set
}

func newClock() *clock {
	return &clock{
		now:    time.Unix(1_700_000_000, 0).UTC(),
		alarms: map[chan time.Time]time.Time{}, armed: make(chan struct{}, 1),
	}
}

// Now is the time.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// At is the signal that it is t.
func (c *clock) At(t time.Time) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	if t.After(c.now) {
		c.alarms[ch] = t
	} else {
		ch <- c.now
	}
	select {
	case c.armed <- struct{}{}:
	default:
	}
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.alarms, ch)
	}
}

// jump lets time go by and returns when the manager has done what was due. Between
// two calls the only alarm is that of the manager's loop, which always has one, see
// history.start. Whatever it wakes up for, it first does what is due and then
// sets the next: so it is woken up, and has done it when there is a next.
func (c *clock) jump(d time.Duration) {
	c.idle()
	c.now = c.now.Add(d)
	for ch := range c.alarms {
		ch <- c.now
		delete(c.alarms, ch)
	}
	c.mu.Unlock()
	c.idle()
	c.mu.Unlock()
}

// idle returns when an alarm is set, with mu held.
func (c *clock) idle() {
	for {
		c.mu.Lock()
		if len(c.alarms) > 0 {
			return
		}
		c.mu.Unlock()
		<-c.armed
	}
}
