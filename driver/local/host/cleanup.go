package host

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
)

// cleanup removes the processes and control groups of one call of [Driver.Cleanup].
type cleanup struct {
	d         *Driver
	markedErr error // why marked processes still run
	// ended has the markers of git's processes that have ended and left nothing.
	ended  map[string]bool
	remark sync.Once
}

// Terminate implements [steps.Cleaner] (rule T7).
func (c *cleanup) Terminate(ctx context.Context, byKind map[string][]driver.Resource) {
	with := c.d.patience()
	limit := steps.HalfTime(ctx, with.Whole())
	if limit <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var supervised sync.WaitGroup
	defer supervised.Wait()
	for _, r := range byKind[steps.KindSupervisor] {
		supervised.Go(func() { c.endSupervised(ctx, r) })
	}
	var groups process.Recorded
	for _, r := range byKind[steps.KindProcess] {
		if readSupervised(r).Supervisor != nil {
			if len(byKind[steps.KindSupervisor]) == 0 {
				supervised.Go(func() { c.endSupervised(ctx, r) })
			}
			continue
		}
		if _, ended := c.d.ended.Load(r.ID); ended {
			continue
		}
		if record, err := readRecord(r); err == nil {
			groups.Add(r.ID, record, steps.IsOurs)
		}
	}
	groups.Terminate(ctx, with, limit)
}

// Removers implements [steps.Cleaner].
func (c *cleanup) Removers() []steps.Remover {
	return []steps.Remover{
		{Kind: steps.KindSupervisor, Remove: c.removeSupervisor},
		{Kind: steps.KindProcess, Prepare: c.killProcesses, Remove: c.removeProcess},
		{Kind: steps.KindGroup, Remove: c.removeGroup},
	}
}

// killProcesses kills all processes that carry one of the markers of list.
func (c *cleanup) killProcesses(ctx context.Context, list []driver.Resource) {
	markers := map[string]bool{}
	for _, r := range list {
		if _, ended := c.d.ended.LoadAndDelete(r.ID); ended {
			c.ended[r.ID] = true
			continue
		}
		if readSupervised(r).Supervisor != nil {
			continue
		}
		markers[r.ID] = true
		// First the processes in control groups, which cannot escape during the search for the others.
		// removeProcess finds an error again.
		if record, err := readRecord(r); err == nil {
			if cg, err := process.OpenCgroup(record.Cgroup, steps.IsOurs); err == nil {
				_ = cg.Kill(ctx.Done())
			}
		}
	}
	delete(markers, "")
	if len(markers) > 0 {
		c.markedErr = process.KillMarked(ctx.Done(), markers)
	}
}

func (c *cleanup) removeProcess(ctx context.Context, r driver.Resource) error {
	if s := readSupervised(r); s.Supervisor != nil {
		if err := c.removeSupervised(ctx, s, r.ID); err != nil {
			return err
		}
		return c.d.shared.Unfollow(ctx, steps.KindProcess+" "+r.ID)
	}
	if c.markedErr != nil {
		return c.markedErr
	}
	record, err := readRecord(r)
	if err != nil {
		return err
	}
	if err := record.Kill(); err != nil {
		return err
	}
	cg, err := process.OpenCgroup(record.Cgroup, steps.IsOurs)
	if err != nil {
		return err
	}
	if err := cg.Kill(ctx.Done()); err != nil {
		return err
	}
	if err := c.d.shared.Unfollow(ctx, steps.KindProcess+" "+r.ID); err != nil {
		return err
	}
	if record.Cgroup == "" && !c.ended[r.ID] && runtime.GOOS != "windows" { // there a job object holds all processes
		c.remarkSurvivors(ctx)
	}
	return cg.Remove()
}

// survivors is the remark of a cleanup that cannot find all processes.
const survivors = "processes of host steps may have survived: this machine has neither supervisors nor control groups for host steps, " +
	"so the cleanup cannot find a process that left its process group and cleared its environment"

// remarkSurvivors says in the log and in the answer that processes may have survived.
func (c *cleanup) remarkSurvivors(ctx context.Context) {
	c.remark.Do(func() {
		c.d.shared.Log(ctx).Warn().Msg(survivors)
		driver.Remark(ctx, survivors)
	})
}

// removeGroup removes the control group of a transaction and all processes in it.
func (c *cleanup) removeGroup(ctx context.Context, r driver.Resource) error {
	cg, err := process.OpenCgroup(r.ID, steps.IsOurs)
	if err != nil {
		return err
	}
	if err := cg.Kill(ctx.Done()); err != nil {
		return err
	}
	return cg.Remove()
}

func readRecord(r driver.Resource) (process.Record, error) {
	var record process.Record
	if len(r.Data) == 0 {
		return record, nil
	}
	if err := json.Unmarshal(r.Data, &record); err != nil {
		return record, fmt.Errorf("read record: %w", err)
	}
	return record, nil
}
