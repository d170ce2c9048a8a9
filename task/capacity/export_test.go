package capacity

import "time"

// HostLoad measures this machine.
var HostLoad = hostLoad

// SetClock replaces the clock, and the age at which a measurement is too old.
func (t *Thresholds) SetClock(now func() time.Time, maxAge time.Duration) {
	t.now, t.maxAge = now, maxAge
}
