package host

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
)

// cleanup removes the processes and control groups of one call of [Driver.Cleanup].
type cleanup struct {
	d          *Driver
	processErr error // why marked processes still run
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
		// First the processes in control groups, which cannot escape while the others are searched.
		// removeProcess finds an error again.
		if data, err := readProcess(r); err == nil {
			if cg, err := recordedCgroup(data.Cgroup); err == nil {
				_ = cg.kill(ctx.Done())
			}
		}
	}
	delete(markers, "")
	c.processErr = killMarked(ctx.Done(), markers)
}

func (c *cleanup) removeProcess(ctx context.Context, r driver.Resource) error {
	if c.processErr != nil {
		return c.processErr
	}
	data, err := readProcess(r)
	if err != nil {
		return err
	}
	if data.PID > 1 {
		if err := killRecorded(data); err != nil {
			return err
		}
	}
	cg, err := recordedCgroup(data.Cgroup)
	if err != nil {
		return err
	}
	if err := cg.kill(ctx.Done()); err != nil {
		return err
	}
	if err := c.d.shared.Unfollow(ctx, steps.KindProcess+" "+r.ID); err != nil {
		return err
	}
	return cg.remove()
}

// removeGroup removes the control group of a transaction and all processes in it.
func (c *cleanup) removeGroup(ctx context.Context, r driver.Resource) error {
	cg, err := recordedCgroup(r.ID)
	if err != nil {
		return err
	}
	if err := cg.kill(ctx.Done()); err != nil {
		return err
	}
	return cg.remove()
}

func readProcess(r driver.Resource) (processData, error) {
	var data processData
	if len(r.Data) == 0 {
		return data, nil
	}
	if err := json.Unmarshal(r.Data, &data); err != nil {
		return data, fmt.Errorf("read record: %w", err)
	}
	return data, nil
}
