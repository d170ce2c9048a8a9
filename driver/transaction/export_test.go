package transaction

import (
	"context"
	"time"
)

// WithInFlight sets how long after a kill an engine may still create resources.
func WithInFlight(d time.Duration) Option { return func(c *config) { c.inFlight = d } }

// WithLease sets how long a transaction may be without activity.
func WithLease(d time.Duration) Option { return func(c *config) { c.lease = d } }

// WithClock replaces time.Now for leases.
func WithClock(now func() time.Time) Option { return func(c *config) { c.now = now } }

// Crash unlocks the ledger, as the end of the process does, and does nothing else.
func (s *Stages) Crash() error { return s.ledger.close() }

// RecoverAll is Recover with the problems that Recover only logs.
func (s *Stages) RecoverAll(ctx context.Context) error { return s.recover(ctx) }
