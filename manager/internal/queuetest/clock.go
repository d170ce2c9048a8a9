package queuetest

import (
	"sync"
	"time"
)

// clock is a manual clock for one manager.
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

// Now returns the current time.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// At returns a channel that receives when it is t.
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

// jump advances the time and returns when the manager has done the due work. Between
// two calls, only the manager's loop has an alarm, and it always has one, see
// newHistory. The loop executes due actions before it sets its next alarm. So the
// work is done when the next alarm is set.
func (c *clock) jump(d time.Duration) {
	c.lockWhenIdle()
	c.now = c.now.Add(d)
	for ch := range c.alarms {
		ch <- c.now
		delete(c.alarms, ch)
	}
	c.mu.Unlock()
	c.lockWhenIdle()
	c.mu.Unlock()
}

// lockWhenIdle returns with mu held when an alarm is set.
func (c *clock) lockWhenIdle() {
	for {
		c.mu.Lock()
		if len(c.alarms) > 0 {
			return
		}
		c.mu.Unlock()
		<-c.armed
	}
}
