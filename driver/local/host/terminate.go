package host

import (
	"context"
	"syscall"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
)

// Terminate implements [steps.Cleaner] (rule T7).
func (c *cleanup) Terminate(ctx context.Context, byKind map[string][]driver.Resource) {
	cfg := c.d.shared.Config
	with := patience{grace: cfg.Grace, attempts: cfg.TermAttempts, interval: cfg.TermInterval}
	if whole := steps.HalfTime(ctx, with.whole()); whole > 0 && len(byKind[steps.KindProcess]) > 0 {
		terminateProcesses(ctx, byKind[steps.KindProcess], with, whole)
	}
}

// terminateProcesses sends SIGTERM as often as with says, until all have ended
// or the time is over.
func terminateProcesses(ctx context.Context, list []driver.Resource, with patience, whole time.Duration) {
	p := processesOf(list)
	if p.signal(syscall.SIGTERM); !p.left() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, whole)
	defer cancel()
	var again <-chan time.Time
	if with.attempts > 1 {
		t := time.NewTicker(with.interval)
		defer t.Stop()
		again = t.C
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for sent := 1; p.left(); {
		select {
		case <-look.C:
		case <-again:
			if sent < with.attempts {
				sent++
				p.signal(syscall.SIGTERM)
			}
		case <-ctx.Done():
			return
		}
	}
}

// recordedProcesses are the processes that records name: those in a control
// group, and those that are found by other means.
type recordedProcesses struct {
	groups  []*cgroup
	others  []processData
	markers map[string]bool
}

func processesOf(list []driver.Resource) *recordedProcesses {
	p := &recordedProcesses{markers: map[string]bool{}}
	for _, r := range list {
		data, err := readProcess(r)
		if err != nil {
			continue
		}
		switch cg, err := recordedCgroup(data.Cgroup); {
		case cg != nil && err == nil:
			p.groups = append(p.groups, cg)
		case data.Cgroup == "" && r.ID != "":
			p.others = append(p.others, data)
			p.markers[r.ID] = true
		}
	}
	return p
}

// signal sends sig to each process once.
func (p *recordedProcesses) signal(sig syscall.Signal) {
	for _, cg := range p.groups {
		cg.signal(sig, 0)
	}
	if len(p.markers) > 0 && signalMarked(p.markers, sig, 0) == 0 {
		for _, data := range p.others {
			_ = signalRecorded(data, sig)
		}
	}
}

func (p *recordedProcesses) left() bool {
	for _, cg := range p.groups {
		if cg.populated() {
			return true
		}
	}
	if len(p.markers) > 0 && signalMarked(p.markers, 0, 0) > 0 {
		return true
	}
	for _, data := range p.others {
		if data.PID > 1 && runs(data) {
			return true
		}
	}
	return false
}

func runs(data processData) bool {
	start, err := processStart(data.PID)
	return err == nil && start == data.Start
}
