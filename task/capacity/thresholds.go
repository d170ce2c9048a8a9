package capacity

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/mem"
)

// Load is the load of a host, in percent.
type Load struct {
	CPU    float64
	Memory float64
}

// Thresholds refuses new stages while the host is busy. The zero value and nil
// refuse none. The fields must not change after the first use. The methods are
// safe for concurrent use.
type Thresholds struct {
	// CPU and Memory are limits in percent. Zero disables the check; 80 is usual (rule
	// P6).
	CPU    float64
	Memory float64
	// Measure returns the load of the host, and is called at most once a second. Nil
	// measures this machine: the CPU load is the average of the last 5 seconds, and the
	// memory load is the share that is not available.
	Measure func(context.Context) (Load, error)
	maxAge  time.Duration    // of a measurement; zero means 1 s
	now     func() time.Time // nil means time.Now

	// mu guards the latest measurement and its result.
	mu   sync.Mutex
	at   time.Time
	last Load
	err  error
	cpu  cpuSampler
}

// Watch samples the CPU load once a second until ctx ends. The poller calls it. Without
// it, the first answer after 5 seconds without a question takes a tenth of a second.
func (t *Thresholds) Watch(ctx context.Context) {
	if t == nil || t.CPU <= 0 || t.Measure != nil {
		return
	}
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		t.mu.Lock()
		_ = t.cpu.sample(ctx) // the next question reports the error
		t.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Excess is a load above its threshold, in percent. Resource is "cpu" or "memory".
type Excess struct {
	Resource    string
	Load, Limit float64
}

func (e *Excess) Error() string {
	name := e.Resource
	if name == "cpu" {
		name = "CPU"
	}
	return fmt.Sprintf("%s is at %.0f %%, the threshold is %.0f %%", name, e.Load, e.Limit)
}

// Exceeded returns the reason for refusing new stages, an [*Excess], or nil. If the load
// cannot be measured, it refuses none and returns the error of the measurement.
func (t *Thresholds) Exceeded(ctx context.Context) (reason, measureErr error) {
	if t == nil || t.CPU <= 0 && t.Memory <= 0 {
		return nil, nil
	}
	load, err := t.currentLoad(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("measuring the host's load: %w", err)
	case t.CPU > 0 && load.CPU > t.CPU:
		return &Excess{"cpu", load.CPU, t.CPU}, nil
	case t.Memory > 0 && load.Memory > t.Memory:
		return &Excess{"memory", load.Memory, t.Memory}, nil
	}
	return nil, nil
}

// currentLoad returns the latest measurement, or measures if that is too old.
func (t *Thresholds) currentLoad(ctx context.Context) (Load, error) {
	now, maxAge, measure := time.Now, t.maxAge, t.Measure
	if t.now != nil {
		now = t.now
	}
	if maxAge <= 0 {
		maxAge = time.Second
	}
	if measure == nil {
		measure = t.hostLoad
	}
	t.mu.Lock() // held while measuring: all waiting callers share the result
	defer t.mu.Unlock()
	if at := now(); t.at.IsZero() || at.Sub(t.at) >= maxAge {
		load, err := measure(ctx)
		if err != nil && ctx.Err() != nil {
			return load, err // another caller's measurement may still succeed
		}
		t.last, t.err, t.at = load, err, at
	}
	return t.last, t.err
}

// hostLoad measures this machine: the CPU load of the last seconds, and the memory that is not
// available. The caller holds mu.
func (t *Thresholds) hostLoad(ctx context.Context) (l Load, err error) {
	if t.CPU > 0 {
		if l.CPU, err = t.cpu.load(ctx); err != nil {
			return Load{}, fmt.Errorf("reading the CPU load: %w", err)
		}
	}
	m, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return Load{}, fmt.Errorf("reading the memory load: %w", err)
	}
	l.Memory = m.UsedPercent
	return l, nil
}
