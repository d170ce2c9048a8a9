package pipeline

import (
	"context"
	"time"
)

// RenewBefore renews the leases that were last renewed before a time.
func (s *Service) RenewBefore(ctx context.Context, before time.Time) error {
	return s.renewBefore(ctx, before)
}

// Waiters returns the number of runs that callers wait for.
func (s *Service) Waiters() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.changed)
}

// Tuned returns a configuration whose messages are claimed for a time and given up after some
// tries. Close is abrupt: it leaves claimed messages as a killed process does.
func Tuned(cfg Config, claim time.Duration, tries int, abrupt bool) Config {
	cfg.tuning = tuning{claim: claim, tries: tries, abrupt: abrupt}
	return cfg
}

// FireDue starts the runs of the cron triggers that are due at a time.
func (s *Service) FireDue(ctx context.Context, at time.Time) error { return s.fireDue(ctx, at) }
