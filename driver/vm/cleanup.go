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

// Find returns the claimed machines that have all labels. It covers the pools of this driver (rule
// T2), so it finds claims that no transaction's ledger has.
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

// Cleanup gives machines back. As their pool is configured, they are destroyed, or cleaned by
// their agent and reused. It needs only the resources and the pool's state directory, so it works
// in another process (rules T2 and T3). Detached steps end with their machine.
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
			c.result(r, fmt.Errorf("this driver does not know the kind %q", r.Kind))
		}
	}
	work.Wait()
	return c.remaining, errors.Join(c.errs...)
}

type cleanup struct {
	d *Driver

	mu        sync.Mutex
	machines  map[string]error  // result of each machine; guarded by mu
	remaining []driver.Resource // guarded by mu
	errs      []error           // guarded by mu
}

func (c *cleanup) result(r driver.Resource, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Kind == kindMachine {
		c.machines[r.ID] = err
	}
	if err != nil {
		c.remaining = append(c.remaining, r)
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
		return fmt.Errorf("it belongs to pool %q, which is not configured", data.Pool)
	}
	if err := p.release(ctx, r.ID, data.Claim, reset); err != nil {
		return err
	}
	c.d.closeLink(data.Claim)
	return nil
}

// closeLink closes the link of a claim that has ended.
func (d *Driver) closeLink(token string) {
	d.mu.Lock()
	lk := d.links[token]
	delete(d.links, token)
	d.mu.Unlock()
	if lk != nil {
		lk.close()
	}
}

// reset makes a machine's agent remove everything that the transaction made.
func reset(ctx context.Context, _ *machine, r *record) error {
	t, err := newTransport(r)
	if err != nil {
		return err
	}
	defer t.CloseIdleConnections()
	return agent.NewClient("https://"+r.Address, t).Destroy(ctx, &agent.DestroyRequest{})
}

// step stops a step whose machine is not part of this cleanup.
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
		return nil //nolint:nilerr // the machine and its steps are gone, or another transaction has it
	}
	defer h.done()
	if err := h.link.client.Stop(ctx, r.ID); err != nil && !errors.Is(err, agent.ErrGone) {
		return err
	}
	return nil
}
