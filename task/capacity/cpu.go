package capacity

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
)

const (
	// cpuWindow is the time over which the CPU load is an average.
	cpuWindow = 5 * time.Second
	// sampleEvery is the time between two samples.
	sampleEvery = time.Second
	// firstWindow is the time between the first two samples.
	firstWindow = 100 * time.Millisecond
)

// cpuSampler measures the CPU load of this machine with separate samples. The function of gopsutil
// measures since its last call in the process, so that two delegates in one process would disturb
// each other.
type cpuSampler struct {
	samples []cpuSample
	read    func(context.Context) (cpuSample, error) // nil reads this machine
}

// cpuSample is the time of all CPUs since the start of the machine, in seconds.
type cpuSample struct {
	at          time.Time
	busy, total float64
}

// sample adds a sample and drops those that are older than the window.
func (c *cpuSampler) sample(ctx context.Context) error {
	read := c.read
	if read == nil {
		read = readCPU
	}
	s, err := read(ctx)
	if err != nil {
		return err
	}
	s.at = time.Now()
	c.samples = append(slices.DeleteFunc(c.samples, func(o cpuSample) bool { return s.at.Sub(o.at) > cpuWindow }), s)
	return nil
}

// load returns the average load over the window, in percent.
func (c *cpuSampler) load(ctx context.Context) (float64, error) {
	if n := len(c.samples); n == 0 || time.Since(c.samples[n-1].at) >= sampleEvery {
		if err := c.sample(ctx); err != nil {
			return 0, err
		}
	}
	if first := c.samples[0]; len(c.samples) == 1 {
		wait := time.NewTimer(firstWindow - time.Since(first.at))
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		if err := c.sample(ctx); err != nil {
			return 0, err
		}
	}
	first, last := c.samples[0], c.samples[len(c.samples)-1]
	total := last.total - first.total
	if total <= 0 {
		return 0, nil // the clock of the machine's counters has not moved
	}
	return min(100, max(0, (last.busy-first.busy)/total*100)), nil
}

// readCPU reads the counters of this machine.
func readCPU(ctx context.Context) (cpuSample, error) {
	all, err := cpu.TimesWithContext(ctx, false)
	if err != nil {
		return cpuSample{}, err
	}
	if len(all) == 0 {
		return cpuSample{}, errors.New("the system has no counters")
	}
	t := all[0]
	total := t.User + t.System + t.Idle + t.Nice + t.Iowait + t.Irq + t.Softirq + t.Steal
	if runtime.GOOS != "linux" { // there they are parts of User and Nice
		total += t.Guest + t.GuestNice
	}
	return cpuSample{busy: total - t.Idle - t.Iowait, total: total}, nil
}
