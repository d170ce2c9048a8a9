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

// kindMachine is the kind of a claimed machine's record in a transaction's ledger.
const kindMachine = "vm"

// machineData goes with such a record.
type machineData struct {
	Pool  string `json:"pool"`
	Claim string `json:"claim"`
}

// waiter waits for a machine. The lowest ticket is served first.
type waiter struct {
	ticket int64
	got    chan *machine // holds one; closed when the pool is
	// reservation makes it a place that is kept for a transaction's init, with nobody
	// there yet.
	reservation *reservation
}

// claim gives a transaction a machine that check is fine with. It waits while
// there is none, in the order of the calls, and says so to log. The machine is in
// the transaction's ledger before the claim takes effect: a cleanup that comes
// in between wins, and the machine goes to somebody else.
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
			p.warmed(m) // it was not its fault
		} else {
			p.discard(m, err)
		}
		p.mu.Unlock()
		p.stir()
	}
}

// take waits for its turn and takes a warm machine. A waiter that has had a turn
// before is still the first one.
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
		reserved = p.inherit(w, env.ID)
	}
	if reserved == nil {
		p.enqueue(w)
		p.deal()
	}
	say := p.explain(w)
	p.mu.Unlock()
	if say != "" && env.Log != nil {
		_, _ = io.WriteString(env.Log, say)
	}
	p.stir()
	var m *machine
	select {
	case m = <-w.got:
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		p.dequeue(w)
		if reserved != nil && reserved.heir == w {
			reserved.heir, reserved.over = nil, true
		}
		select {
		case m := <-w.got:
			if m != nil {
				p.warmed(m)
			}
		default:
		}
		return nil, fmt.Errorf("waiting for a machine: %w", errors.Join(context.Cause(ctx), p.why))
	}
	if m == nil {
		return nil, errClosed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.claim = c
	return m, nil
}

// enqueue puts w where its ticket belongs. The caller holds mu.
func (p *Pool) enqueue(w *waiter) {
	at, _ := slices.BinarySearchFunc(p.queue, w.ticket, func(o *waiter, t int64) int { return int(o.ticket - t) })
	p.queue = slices.Insert(p.queue, at, w)
}

// dequeue takes w out of the queue, if it is there. The caller holds mu.
func (p *Pool) dequeue(w *waiter) {
	p.queue = slices.DeleteFunc(p.queue, func(o *waiter) bool { return o == w })
}

// deal gives warm machines to those who wait, the longest warm one first. The
// caller holds mu.
func (p *Pool) deal() {
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
			p.keepFor(oldest, w.reservation)
			continue
		}
		oldest.become(taken)
		w.got <- oldest
	}
}

// explain says why somebody has to wait, and nothing to whom need not. The caller
// holds mu.
func (p *Pool) explain(w *waiter) string {
	at := slices.Index(p.queue, w)
	if at < 0 {
		return ""
	}
	text := fmt.Sprintf("Waiting for a machine of pool %s: ", p.cfg.Name)
	if len(p.machines) >= p.cfg.Max {
		text += fmt.Sprintf("all %d are in use or being made", p.cfg.Max)
	} else {
		text += "none is ready yet"
	}
	if at > 0 {
		text += fmt.Sprintf(", and %d asked before", at)
	}
	if p.why != nil {
		text += fmt.Sprintf(" (the last problem: %v)", p.why)
	}
	return text + ".\n"
}

// confirm makes a claim take effect: first in the transaction's ledger, then in
// the pool's. A process that dies in between leaves a machine that is warm, says
// the pool, and a record whose token no machine has, which is nothing to clean up.
func (p *Pool) confirm(ctx context.Context, m *machine, l driver.Ledger) error {
	err := l.Record(ctx, p.resource(m.id, m.claim))
	p.mu.Lock()
	if err == nil && m.condemned {
		err = errors.New("the transaction has been cleaned up")
	}
	if err == nil && !p.running {
		err = errClosed
	}
	if err != nil {
		p.warmed(m)
		p.mu.Unlock()
		return err
	}
	m.recorded = true
	before, rec := *m.rec, *m.rec
	rec.Phase, rec.Claim, rec.Reserved = claimed, m.claim, nil
	p.mu.Unlock()
	var undone error
	if err = p.records.write(&rec, durable); err != nil {
		// It may be on record all the same, and the next process would keep the machine
		// for a transaction that is over.
		undone = p.records.write(&before, durable)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case undone != nil:
		p.failed(undone)
		p.end(m, fmt.Errorf("nobody knows what is on record: %w", undone))
		return err
	case err != nil:
		p.warmed(m)
		return err
	}
	m.rec, m.touched = &rec, time.Now()
	m.become(claimed)
	return nil
}

// resource is the record of a claimed machine.
func (p *Pool) resource(id string, c *claim) driver.Resource {
	labels := maps.Clone(c.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[driver.LabelTransaction] = c.Transaction
	data, _ := json.Marshal(machineData{Pool: p.cfg.Name, Claim: c.Token}) // of strings alone
	return driver.Resource{Kind: kindMachine, ID: id, Labels: labels, Data: data}
}

// enter makes Close wait for p.work.Done. It reports false when there is no use in
// beginning.
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
		return nil, fmt.Errorf("pool %s: machine %s is not this transaction's, or not any more", p.cfg.Name, id)
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

// lost says that a claimed machine is dead. Its transaction's cleanup comes all
// the same.
func (p *Pool) lost(m *machine, gone <-chan struct{}, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.reason != nil || gone != m.gone {
		return // known, or the machine is somebody else's by now
	}
	p.failures++
	p.cfg.Log.Error().Err(why).Str("pool", p.cfg.Name).Str("machine", m.id).Msg("a claimed machine is lost")
	m.fail(why)
}

// find lists the claimed machines that carry all of labels.
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
