package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
)

// Find returns the claimed machines that carry all of labels. It knows those of
// this driver's pools, which are all that a delegate has (SPEC T2): a claim that
// no transaction's record names is found here.
func (d *Driver) Find(_ context.Context, labels map[string]string) ([]driver.Resource, error) {
	for k, v := range labels {
		if k == "" || v == "" {
			return nil, nil
		}
	}
	if len(labels) == 0 {
		return nil, nil
	}
	var found []driver.Resource
	for _, p := range d.pools {
		found = append(found, p.find(labels)...)
	}
	return found, nil
}

// Cleanup gives machines back: they are destroyed, or cleaned up by their agent
// and used again, as their pool says. It needs the records and the pool's state
// folder, so that it works in another process (SPEC T2, T3). Detached steps are not
// asked to end; their machine goes.
func (d *Driver) Cleanup(ctx context.Context, rs []driver.Resource) ([]driver.Resource, error) {
	c := &cleanup{d: d, machines: map[string]error{}}
	var work sync.WaitGroup
	for _, r := range rs {
		if r.Kind == kindMachine {
			work.Go(func() { c.result(r, c.machine(ctx, r)) })
		}
	}
	work.Wait()
	for _, r := range rs {
		switch r.Kind {
		case kindMachine:
		case kindStep:
			work.Go(func() { c.result(r, c.step(ctx, r)) })
		default:
			c.result(r, fmt.Errorf("kind %q is not known to this driver", r.Kind))
		}
	}
	work.Wait()
	return c.left, errors.Join(c.errs...)
}

type cleanup struct {
	d *Driver

	mu       sync.Mutex
	machines map[string]error  // what has come of those that were named; guarded by mu
	left     []driver.Resource // guarded by mu
	errs     []error           // guarded by mu
}

func (c *cleanup) result(r driver.Resource, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Kind == kindMachine {
		c.machines[r.ID] = err
	}
	if err != nil {
		c.left = append(c.left, r)
		c.errs = append(c.errs, fmt.Errorf("remove %s %s: %w", r.Kind, r.ID, err))
	}
}

// machine ends a claim.
func (c *cleanup) machine(ctx context.Context, r driver.Resource) error {
	data := machineData{}
	if err := json.Unmarshal(r.Data, &data); err != nil {
		return fmt.Errorf("read record: %w", err)
	}
	p := c.d.pools[data.Pool]
	if p == nil {
		return fmt.Errorf("it is of pool %q, which is not configured", data.Pool)
	}
	if err := p.release(ctx, r.ID, data.Claim, reset); err != nil {
		return err
	}
	c.d.forget(data.Claim)
	return nil
}

// forget ends the link of a claim that has ended.
func (d *Driver) forget(token string) {
	d.mu.Lock()
	way := d.links[token]
	delete(d.links, token)
	d.mu.Unlock()
	if way != nil {
		way.close()
	}
}

// reset has a machine's agent remove all that a transaction has made.
func reset(ctx context.Context, _ *machine, r *record) error {
	t, err := newTransport(r)
	if err != nil {
		return err
	}
	defer t.CloseIdleConnections()
	return agent.NewClient("https://"+r.Address, t).Destroy(ctx, &agent.DestroyRequest{})
}

// step sees to a step without its machine: it is stopped.
func (c *cleanup) step(ctx context.Context, r driver.Resource) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s, err := stateOf(r)
	if err != nil {
		return err
	}
	c.mu.Lock()
	ended, named := c.machines[s.Machine]
	c.mu.Unlock()
	if named {
		return ended
	}
	h, err := c.d.hold(s)
	if err != nil {
		return nil //nolint:nilerr // the machine is gone, or somebody else's, and the step with it
	}
	defer h.done()
	if err := h.way.client.Stop(ctx, r.ID); err != nil && !errors.Is(err, agent.ErrGone) {
		return err
	}
	return nil
}
