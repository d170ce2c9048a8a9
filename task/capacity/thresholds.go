package capacity

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/mem"
)

// DefaultThreshold is the share of CPU or memory, in percent, above which a
// delegate that watches its host refuses new stages (SPEC P6).
const DefaultThreshold = 80

// Load is how busy the host is, each figure in percent.
type Load struct {
	CPU    float64
	Memory float64
}

// Thresholds refuses work while the host is busy. The zero value refuses
// nothing. Fields must not change after the first use; the methods are safe for
// concurrent use.
type Thresholds struct {
	// CPU and Memory are limits in percent; 0 turns the check off.
	CPU    float64
	Memory float64
	// Measure reads the host's load. Nil measures this machine.
	Measure func(context.Context) (Load, error)
	// Every is how old a reading may be before it is taken anew. 0 is 1 s.
	Every time.Duration
	// Now replaces the clock; nil is time.Now.
	Now func() time.Time

	mu   sync.Mutex
	at   time.Time
	last Load
	err  error
}

// Exceeded says why new stages have to wait, or nil. A host that cannot be
// measured refuses nothing: the second result is then why.
func (t *Thresholds) Exceeded(ctx context.Context) (reason, problem error) {
	if t == nil || t.CPU <= 0 && t.Memory <= 0 {
		return nil, nil
	}
	load, err := t.load(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("measuring the host's load: %w", err)
	case t.CPU > 0 && load.CPU > t.CPU:
		return fmt.Errorf("CPU is at %.0f %%, the threshold is %.0f %%", load.CPU, t.CPU), nil
	case t.Memory > 0 && load.Memory > t.Memory:
		return fmt.Errorf("memory is at %.0f %%, the threshold is %.0f %%", load.Memory, t.Memory), nil
	}
	return nil, nil
}

func (t *Thresholds) load(ctx context.Context) (Load, error) {
	now, every, measure := time.Now, t.Every, t.Measure
	if t.Now != nil {
		now = t.Now
	}
	if every <= 0 {
		every = time.Second
	}
	if measure == nil {
		measure = HostLoad
	}
	t.mu.Lock() // held while measuring: one reading serves all who wait
	defer t.mu.Unlock()
	if at := now(); t.at.IsZero() || at.Sub(t.at) >= every {
		load, err := measure(ctx)
		if err != nil && ctx.Err() != nil {
			return load, err // the caller's end says nothing to the next one
		}
		t.last, t.err, t.at = load, err, at
	}
	return t.last, t.err
}

// HostLoad measures this machine: the CPU since the last call in this process,
// and the memory that is not available.
func HostLoad(ctx context.Context) (Load, error) {
	c, err := cpu.PercentWithContext(ctx, 0, false)
	if err != nil {
		return Load{}, fmt.Errorf("reading the CPU's load: %w", err)
	}
	m, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return Load{}, fmt.Errorf("reading the memory's load: %w", err)
	}
	l := Load{Memory: m.UsedPercent}
	if len(c) > 0 {
		l.CPU = c[0]
	}
	return l, nil
}
