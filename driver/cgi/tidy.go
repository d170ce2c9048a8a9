package cgi

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/internal/artifact"
)

// tidyInterval is the time between checks of a cache without new entries.
const tidyInterval = time.Hour

// tidy keeps a cache within its limits, in the background.
type tidy struct {
	limits artifact.Limits
	work   sync.WaitGroup

	mu   sync.Mutex
	busy bool      // guarded by mu
	seen uint64    // guarded by mu: number of created entries at the last check
	next time.Time // guarded by mu
}

// bound returns a limit: the default for 0, and no limit for a negative value.
func bound[T int64 | time.Duration](n, byDefault T) T {
	if n == 0 {
		return byDefault
	}
	return max(n, 0)
}

// start starts a check of the cache if one is due, and does not wait for it.
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
				log.Warn().Err(err).Msg("cannot remove entries from the cache of CGI programs, which may exceed its limits")
			}
		}
	})
}

// due reports whether a check is due. The caller holds mu.
func (t *tidy) due(c *artifact.Cache) bool {
	return c.Made() != t.seen || time.Now().After(t.next)
}

// again reports whether another check is due, and clears busy if not.
func (t *tidy) again(c *artifact.Cache) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy = t.due(c); t.busy {
		t.seen, t.next = c.Made(), time.Now().Add(tidyInterval)
	}
	return t.busy
}
