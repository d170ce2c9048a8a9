package local

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/delegate-io/dlite/driver"
)

// terminate asks everything that a cleanup is going to kill to end, and returns
// when it has, or the driver's patience or half of the cleanup's time is over
// (SPEC T7). What goes wrong is left to the removal that follows.
func (c *cleanup) terminate(ctx context.Context, byKind map[string][]driver.Resource) {
	with := patience{grace: c.d.cfg.grace, attempts: c.d.cfg.attempts, interval: c.d.cfg.interval}
	half := with.whole()
	if end, ok := ctx.Deadline(); ok {
		half = min(half, time.Until(end)/2)
	}
	var wg sync.WaitGroup
	if whole := min(with.whole(), half); whole > 0 && len(byKind[kindProcess]) > 0 {
		wg.Go(func() { terminateProcesses(ctx, byKind[kindProcess], with, whole) })
	}
	if grace := min(c.d.cfg.grace, half); grace > 0 {
		for _, r := range byKind[kindContainer] {
			wg.Go(func() { c.stopContainer(ctx, r, grace) })
		}
	}
	wg.Wait()
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

// stopContainer stops a container that may run. An engine that is away is waited
// for by who removes it.
func (c *cleanup) stopContainer(ctx context.Context, r driver.Resource, grace time.Duration) {
	if !isOurs(r.ID) || c.d.wasRemoved(r.ID) {
		return
	}
	cli, err := c.d.engine.client()
	if err != nil {
		return
	}
	seconds := int((grace + time.Second - 1) / time.Second)
	ctx, cancel := context.WithTimeout(ctx, grace+engineTimeout)
	defer cancel()
	err = cli.ContainerStop(ctx, r.ID, container.StopOptions{Timeout: &seconds})
	if err != nil && !errdefs.IsNotFound(err) {
		c.d.cfg.log.Warn().Err(err).Str("container", r.ID).Msg("stop container")
	}
}
