package capacity

import (
	"context"
	"time"
)

// SetCPU replaces the counters of the machine: seconds of all CPUs, busy and in total.
func (t *Thresholds) SetCPU(read func() (busy, total float64)) {
	t.cpu.read = func(context.Context) (cpuSample, error) {
		busy, total := read()
		return cpuSample{busy: busy, total: total}, nil
	}
}

// SetClock replaces the clock, and the age at which a measurement is too old.
func (t *Thresholds) SetClock(now func() time.Time, maxAge time.Duration) {
	t.now, t.maxAge = now, maxAge
}
