package poller

import "time"

// WithOverrun sets how long a handler may take to return after its context has
// ended.
func WithOverrun(d time.Duration) Option { return func(c *config) { c.overrun = d } }
