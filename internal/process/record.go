package process

import (
	"context"
	"syscall"
	"time"
)

// MarkerVariable is the environment variable that marks the processes of a group, see [Options].
const MarkerVariable = "DLITE_PROCESS"

// Record finds a group after the death of the delegate that started it.
type Record struct {
	// Cgroup is the path of the control group. With it the other fields are empty. It is known before
	// the process runs.
	Cgroup string `json:"cgroup,omitempty"`
	PID    int    `json:"pid,omitempty"`
	// Start distinguishes the process from a later one with the same id.
	Start string `json:"start,omitempty"`
}

// NewRecord returns the record of a running process. It fails if the process has ended or the platform
// does not tell when it started.
func NewRecord(pid int) (Record, error) {
	start, err := startTime(pid)
	return Record{PID: pid, Start: start}, err
}

// Kill kills the process group of the record. The control group is not included.
func (r Record) Kill() error {
	if !r.Running() {
		return nil
	}
	return r.kill()
}

// Running reports whether the first process runs, or has ended and was not waited for.
func (r Record) Running() bool {
	if r.PID <= 1 {
		return false
	}
	start, err := startTime(r.PID)
	return err == nil && start == r.Start
}

// Recorded is a set of groups that records name.
type Recorded struct {
	cgroups []*Cgroup
	others  []Record
	markers map[string]bool
}

// Add adds the group with a marker. A control group is used only if isOwn accepts its name.
func (p *Recorded) Add(marker string, r Record, isOwn func(name string) bool) {
	switch cg, err := OpenCgroup(r.Cgroup, isOwn); {
	case cg != nil && err == nil:
		p.cgroups = append(p.cgroups, cg)
	case r.Cgroup == "" && marker != "":
		p.others = append(p.others, r)
		if p.markers == nil {
			p.markers = map[string]bool{}
		}
		p.markers[marker] = true
	}
}

// Terminate sends SIGTERM to all groups, as often as with says. It returns when all have ended, or
// after limit.
func (p *Recorded) Terminate(ctx context.Context, with Patience, limit time.Duration) {
	if p.signal(syscall.SIGTERM); !p.running() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var again <-chan time.Time
	if with.Attempts > 1 {
		t := time.NewTicker(with.Interval)
		defer t.Stop()
		again = t.C
	}
	look := time.NewTicker(2 * aliveInterval)
	defer look.Stop()
	for sent := 1; p.running(); {
		select {
		case <-look.C:
		case <-again:
			if sent < with.Attempts {
				sent++
				p.signal(syscall.SIGTERM)
			}
		case <-ctx.Done():
			return
		}
	}
}

// signal sends sig to each process once.
func (p *Recorded) signal(sig syscall.Signal) {
	for _, cg := range p.cgroups {
		cg.signal(sig, 0)
	}
	if len(p.markers) > 0 && signalMarked(p.markers, sig, 0) == 0 {
		for _, r := range p.others {
			if r.Running() {
				r.signal(sig)
			}
		}
	}
}

func (p *Recorded) running() bool {
	for _, cg := range p.cgroups {
		if cg.populated() {
			return true
		}
	}
	if len(p.markers) > 0 && signalMarked(p.markers, 0, 0) > 0 {
		return true
	}
	for _, r := range p.others {
		if r.Running() {
			return true
		}
	}
	return false
}
