package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/delegate-io/dlite/driver"
)

// kindMachine is the resource kind of a claimed machine in a transaction's ledger.
const kindMachine = "vm"

// machineData is the data of such a resource.
type machineData struct {
	Pool  string `json:"pool"`
	Claim string `json:"claim"`
}

// waiter waits for a machine. The pool serves the lowest ticket first.
type waiter struct {
	ticket int64
	got    chan *machine // has room for one; closed with the pool
	// reservation is set for a place in the queue whose init has not come yet.
	reservation *reservation
}

// claim claims a machine for which check succeeds. It waits for one in the order of the calls, and
// reports the wait to env.Log. It records the machine in the transaction's ledger before the claim
// takes effect: a cleanup in between cancels the claim.
func (p *Pool) claim(
	ctx context.Context, env *driver.Environment, l driver.Ledger, check func(context.Context, *machine, *record) error,
) (*machine, error) {
	w := &waiter{got: make(chan *machine, 1)}
	if !p.enter() {
		return nil, fmt.Errorf("pool %s: %w", p.cfg.Name, errClosed)
	}
	defer p.work.Done()
	for {
		m, err := p.take(ctx, w, env)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", p.cfg.Name, err)
		}
		checking, cancel := context.WithTimeout(ctx, p.cfg.HealthTimeout)
		err = check(checking, m, m.rec)
		cancel()
		if err == nil {
			if err = p.confirm(ctx, m, l); err != nil {
				return nil, fmt.Errorf("pool %s: machine %s: %w", p.cfg.Name, m.id, err)
			}
			return m, nil
		}
		p.mu.Lock()
		if ctx.Err() != nil {
			p.makeWarm(m) // the caller gave up: the machine is fine
		} else {
			p.discard(m, err)
		}
		p.mu.Unlock()
		p.signal()
	}
}

// take waits for a warm machine. A waiter that returns after a failed check keeps its ticket and
// is the first one.
func (p *Pool) take(ctx context.Context, w *waiter, env *driver.Environment) (*machine, error) {
	c := &claim{Token: newID(), Transaction: env.ID, Labels: maps.Clone(env.Labels), Since: time.Now()}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if !p.running {
		p.mu.Unlock()
		return nil, errClosed
	}
	var reserved *reservation
	if w.ticket == 0 {
		p.demand = max(p.demand-1, 0) // it waits here now
		reserved = p.useReservation(w, env.ID)
	}
	if reserved == nil {
		p.enqueue(w)
		p.assignMachines()
	}
	message := p.explain(w)
	p.mu.Unlock()
	if message != "" && env.Log != nil {
		_, _ = io.WriteString(env.Log, message)
	}
	p.signal()
	var m *machine
	select {
	case m = <-w.got:
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		p.dequeue(w)
		if reserved != nil && reserved.waiter == w {
			reserved.waiter, reserved.cancelled = nil, true
		}
		select {
		case m := <-w.got:
			if m != nil {
				p.makeWarm(m)
			}
		default:
		}
		return nil, fmt.Errorf("waiting for a machine: %w", errors.Join(context.Cause(ctx), p.lastFailure))
	}
	if m == nil {
		return nil, errClosed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.claim = c
	return m, nil
}

// enqueue inserts w by its ticket. The caller holds mu.
func (p *Pool) enqueue(w *waiter) {
	at, _ := slices.BinarySearchFunc(p.queue, w.ticket, func(o *waiter, t int64) int { return int(o.ticket - t) })
	p.queue = slices.Insert(p.queue, at, w)
}

// dequeue removes w from the queue. The caller holds mu.
func (p *Pool) dequeue(w *waiter) {
	p.queue = slices.DeleteFunc(p.queue, func(o *waiter) bool { return o == w })
}

// assignMachines gives warm machines to waiters, the longest warm machine first. The caller holds
// mu.
func (p *Pool) assignMachines() {
	for len(p.queue) > 0 {
		var oldest *machine
		for _, m := range p.machines {
			if m.phase == warm && (oldest == nil || m.since.Before(oldest.since)) {
				oldest = m
			}
		}
		if oldest == nil {
			return
		}
		w := p.queue[0]
		p.queue = slices.Delete(p.queue, 0, 1)
		if w.reservation != nil {
			p.reserveMachine(oldest, w.reservation)
			continue
		}
		oldest.setPhase(assigned)
		w.got <- oldest
	}
}

// explain describes why w must wait. It returns "" if w is not in the queue. The caller holds mu.
func (p *Pool) explain(w *waiter) string {
	at := slices.Index(p.queue, w)
	if at < 0 {
		return ""
	}
	text := fmt.Sprintf("Waiting for a machine of pool %s: ", p.cfg.Name)
	if len(p.machines) >= p.cfg.Max {
		text += fmt.Sprintf("all %d are in use or being created", p.cfg.Max)
	} else {
		text += "none is ready yet"
	}
	if at > 0 {
		text += fmt.Sprintf(", and %d ahead in the queue", at)
	}
	if p.lastFailure != nil {
		text += fmt.Sprintf(" (the last failure: %v)", p.lastFailure)
	}
	return text + ".\n"
}

// confirm makes a claim take effect: first in the transaction's ledger, then in the pool's
// records. If the process dies in between, the machine is still warm, and the ledger has a token
// that no machine has. A cleanup of that token does nothing.
func (p *Pool) confirm(ctx context.Context, m *machine, l driver.Ledger) error {
	err := l.Record(ctx, p.resource(m.id, m.claim))
	p.mu.Lock()
	if err == nil && m.cancelled {
		err = errors.New("the transaction has been cleaned up")
	}
	if err == nil && !p.running {
		err = errClosed
	}
	if err != nil {
		p.makeWarm(m)
		p.mu.Unlock()
		return err
	}
	m.recorded = true
	before, rec := *m.rec, *m.rec
	rec.Phase, rec.Claim, rec.Reserved = claimed, m.claim, nil
	p.mu.Unlock()
	var undone error
	if err = p.records.write(&rec, durable); err != nil {
		// The write may have succeeded in part. The next process would then keep the machine for a
		// transaction that is over.
		undone = p.records.write(&before, durable)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case undone != nil:
		p.failed(undone)
		p.end(m, fmt.Errorf("the state of its record is unknown: %w", undone))
		return err
	case err != nil:
		p.makeWarm(m)
		return err
	}
	m.rec, m.touched = &rec, time.Now()
	m.checkedAt = m.touched
	m.setPhase(claimed)
	p.bill.stages++
	p.signal() // questions for notices begin
	return nil
}

// resource returns the ledger's resource of a claimed machine.
func (p *Pool) resource(id string, c *claim) driver.Resource {
	labels := maps.Clone(c.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[driver.LabelTransaction] = c.Transaction
	data, _ := json.Marshal(machineData{Pool: p.cfg.Name, Claim: c.Token}) // strings never fail
	return driver.Resource{Kind: kindMachine, ID: id, Labels: labels, Data: data}
}

// enter registers work that Close waits for; the caller calls p.work.Done. It returns false if the
// pool does not run.
func (p *Pool) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		p.work.Add(1)
	}
	return p.running
}

// hold gives access to a claimed machine until done is called.
func (p *Pool) hold(id, token string) (*hold, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.machines[id]
	if !p.running || m == nil || m.phase != claimed || m.claim.Token != token {
		return nil, fmt.Errorf("pool %s: machine %s does not belong to this transaction (any more)", p.cfg.Name, id)
	}
	m.users++
	m.touched = time.Now()
	return &hold{machine: m, rec: m.rec, gone: m.gone, done: func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		m.users--
		m.touched = time.Now()
	}}, nil
}

// hold is access to a claimed machine until done is called.
type hold struct {
	machine *machine
	rec     *record
	gone    <-chan struct{}
	done    func()
}

// lost marks a claimed machine as dead. The transaction's cleanup still removes it.
func (p *Pool) lost(m *machine, gone <-chan struct{}, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.reason != nil || gone != m.gone {
		return // already marked, or claimed by another transaction now
	}
	p.failures++
	p.cfg.Log.Error().Err(why).Str("pool", p.cfg.Name).Str("machine", m.id).Msg("a claimed machine is lost")
	m.markDead(why)
}

// find returns the claimed machines that have all labels.
func (p *Pool) find(labels map[string]string) []driver.Resource {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []driver.Resource
	for _, m := range p.machines {
		if !p.running || m.phase != claimed {
			continue
		}
		r := p.resource(m.id, m.claim)
		all := true
		for k, v := range labels {
			all = all && r.Labels[k] == v
		}
		if all {
			found = append(found, r)
		}
	}
	return found
}
