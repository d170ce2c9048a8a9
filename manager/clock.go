package manager

import "time"

// Clock is a source of time, for tests and simulations.
type Clock interface {
	// Now returns the current time.
	Now() time.Time
	// At returns a channel that receives one value at time t, or at once if t has
	// passed. The caller calls stop once, at any time, to free the timer.
	At(t time.Time) (c <-chan time.Time, stop func())
}

type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) At(at time.Time) (<-chan time.Time, func()) {
	t := time.NewTimer(time.Until(at))
	return t.C, func() { t.Stop() }
}

// after returns a channel that receives one value when d has passed.
func (m *Manager) after(d time.Duration) (<-chan time.Time, func()) {
	return m.cfg.Clock.At(m.cfg.Clock.Now().Add(d))
}
