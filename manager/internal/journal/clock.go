package journal

import (
	"sync"
	"time"
)

// clock is the clock of a log that has none. It never goes back. If the clock of the process was
// set back, time passes at half speed until the process has caught up: deadlines still come, and
// a small correction is soon made up for. It is safe for concurrent use.
type clock struct {
	process func() time.Time

	mu   sync.Mutex
	read time.Time // the last reading of the clock of the process; guarded by mu
	time time.Time // without a monotonic reading; guarded by mu
}

// now returns the time.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	read := c.process()
	if elapsed := read.Sub(c.read); elapsed > 0 && !c.read.IsZero() { // also correct if the clock was set
		c.time = c.time.Add(elapsed / 2)
	}
	c.read = read
	c.reached(read)
	return c.time
}

// reach sets the clock forward to the time of an entry.
func (c *clock) reach(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reached(at)
}

func (c *clock) reached(at time.Time) {
	if at = at.Round(0); at.After(c.time) {
		c.time = at
	}
}
