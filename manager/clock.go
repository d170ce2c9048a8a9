package manager

import "time"

// Clock is the manager's time. Tests give their own.
type Clock interface {
	// Now is the time.
	Now() time.Time
	// At sends once when it is the time t or later, also when that is past. Stop
	// frees what that takes; it is called once, at any time.
	At(t time.Time) (c <-chan time.Time, stop func())
}

type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) At(at time.Time) (<-chan time.Time, func()) {
	t := time.NewTimer(time.Until(at))
	return t.C, func() { t.Stop() }
}

// after is a clock's signal when d has passed.
func (m *Manager) after(d time.Duration) (<-chan time.Time, func()) {
	return m.cfg.Clock.At(m.cfg.Clock.Now().Add(d))
}
