package host

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
)

// cleanup removes the processes and control groups of one call of [Driver.Cleanup].
type cleanup struct {
	d         *Driver
	markedErr error // why marked processes still run
}

// Terminate implements [steps.Cleaner] (rule T7).
func (c *cleanup) Terminate(ctx context.Context, byKind map[string][]driver.Resource) {
	cfg := c.d.shared.Config
	with := process.Patience{Grace: cfg.Grace, Attempts: cfg.TermAttempts, Interval: cfg.TermInterval}
	limit := steps.HalfTime(ctx, with.Whole())
	if limit <= 0 {
		return
	}
	var groups process.Recorded
	for _, r := range byKind[steps.KindProcess] {
		if record, err := readRecord(r); err == nil {
			groups.Add(r.ID, record, steps.IsOurs)
		}
	}
	groups.Terminate(ctx, with, limit)
}

// Removers implements [steps.Cleaner].
func (c *cleanup) Removers() []steps.Remover {
	return []steps.Remover{
		{Kind: steps.KindProcess, Prepare: c.killProcesses, Remove: c.removeProcess},
		{Kind: steps.KindGroup, Remove: c.removeGroup},
	}
}

// killProcesses kills all processes that carry one of the markers of list.
func (c *cleanup) killProcesses(ctx context.Context, list []driver.Resource) {
	markers := map[string]bool{}
	for _, r := range list {
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
	c.markedErr = process.KillMarked(ctx.Done(), markers)
}

func (c *cleanup) removeProcess(ctx context.Context, r driver.Resource) error {
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
	return cg.Remove()
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
