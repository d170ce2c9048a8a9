package cgi

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/internal/artifact"
)

// tidyInterval is how often a cache is looked at that gets nothing new.
const tidyInterval = time.Hour

// tidy keeps a cache within its bounds, behind the backs of tasks.
type tidy struct {
	limits artifact.Limits
	work   sync.WaitGroup

	mu   sync.Mutex
	busy bool      // guarded by mu
	seen uint64    // guarded by mu: how much had been made when it was cleared last
	next time.Time // guarded by mu
}

// bound is a setting: 0 is the default, and less is none.
func bound[T int64 | time.Duration](n, byDefault T) T {
	if n == 0 {
		return byDefault
	}
	return max(n, 0)
}

// start clears the cache when it is time to, and does not wait for it.
func (t *tidy) start(c *artifact.Cache, log *zerolog.Logger) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy || !t.due(c) {
		return
	}
	t.busy = true
	t.work.Go(func() {
		for t.again(c) {
			if err := c.Trim(time.Now(), t.limits); err != nil {
				log.Warn().Err(err).Msg("the cache of CGI programs may grow beyond its bounds")
			}
		}
	})
}

// due is called with mu held.
func (t *tidy) due(c *artifact.Cache) bool {
	return c.Made() != t.seen || time.Now().After(t.next)
}

// again reports whether there is something to do, and ends being busy when not.
func (t *tidy) again(c *artifact.Cache) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy = t.due(c); t.busy {
		t.seen, t.next = c.Made(), time.Now().Add(tidyInterval)
	}
	return t.busy
}
