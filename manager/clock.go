package manager

import "time"

// Clock is the manager's time. Tests give their own.
type Clock interface {
	// Now is the time.
	Now() time.Time
	// After sends once when d has passed, at once when d is not positive. Stop
	// frees what that takes; it may be called at any time, once.
	After(d time.Duration) (c <-chan time.Time, stop func())
}

type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
