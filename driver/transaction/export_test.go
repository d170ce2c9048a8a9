package transaction

import "time"

// WithInFlight sets how long after a kill something may still come to be.
func WithInFlight(d time.Duration) Option { return func(c *config) { c.inFlight = d } }

// Crash lets go of the ledger as the end of the process does, and of nothing
// else.
func (m *Manager) Crash() error { return m.ledger.close() }
