package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/driver"
)

// Reserve keeps a machine for the transaction's Init, for as long as limit; more
// than the pool's lease counts as that. Where no machine is warm it keeps the
// transaction's place in the queue. A machine that is kept is on record, so that it
// is kept for the rest of the time by the next process too; a place in the queue is
// lost with the process.
func (d *Driver) Reserve(ctx context.Context, env *driver.Environment, limit time.Duration) (*driver.Reservation, error) {
	if env.ID == "" || limit <= 0 {
		return nil, fmt.Errorf("reserve a machine: the transaction is %q and the time %v; neither may be empty", env.ID, limit)
	}
	p, err := d.poolOf(env)
	if err != nil {
		return nil, fmt.Errorf("reserve a machine: %w", err)
	}
	r, err := p.reserve(ctx, env.ID, limit)
	if err != nil {
		return nil, fmt.Errorf("reserve a machine: pool %s: %w", p.cfg.Name, err)
	}
	return r, nil
}

// Unreserve gives back what the transaction has reserved. When it has returned
// without an error, a later process does not keep it either.
func (d *Driver) Unreserve(ctx context.Context, transaction string) error {
	var errs []error
	for _, p := range d.pools {
		if m := p.unreserve(transaction); m != nil {
			if err := p.awaitFree(ctx, m); err != nil {
				errs = append(errs, fmt.Errorf("give back a reserved machine: pool %s: %w", p.cfg.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// reservation is a machine, or a place in the queue, that waits for the init of a
// transaction. Its fields are guarded by the pool's mu.
type reservation struct {
	transaction string
	ticket      int64
	until       time.Time
	place       *waiter  // its place in the queue; nil while it has a machine
	machine     *machine // nil while it is in the queue
	heir        *waiter  // the init, which has come before the machine was ready
	over        bool     // the machine is not wanted any more, once it is ready
}

// disinherit lets an init go that waits for the machine to be ready. The pool is
// being closed.
func (r *reservation) disinherit() {
	if r != nil && r.heir != nil {
		close(r.heir.got)
		r.heir, r.over = nil, true
	}
}

func (p *Pool) reserve(ctx context.Context, transaction string, limit time.Duration) (*driver.Reservation, error) {
	if !p.enter() {
		return nil, errClosed
	}
	defer p.work.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return nil, errClosed
	}
	r := p.reservations[transaction]
	if r == nil {
		p.tickets++
		r = &reservation{transaction: transaction, ticket: p.tickets, until: time.Now().Add(min(limit, p.cfg.Lease))}
		p.reservations[transaction] = r
		p.queueFor(r)
		p.deal()
		p.stir()
	}
	// It counts when it is on record.
	for r.machine != nil && r.machine.phase == reserving && p.running {
		changed := r.machine.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	if !p.running {
		return nil, errClosed
	}
	told := &driver.Reservation{Pool: p.cfg.Name, Until: r.until}
	if r.machine != nil {
		told.Machine = r.machine.id
	}
	for i, w := range p.queue {
		if w == r.place {
			told.Place = i + 1
		}
	}
	return told, nil
}

// unreserve ends a reservation that no init has used, and returns the machine that
// is to be free again, if there is one.
func (p *Pool) unreserve(transaction string) *machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.reservations[transaction]
	if r == nil || !p.running {
		return nil
	}
	p.drop(r)
	return r.machine
}

// awaitFree returns when the machine's record tells of no reservation.
func (p *Pool) awaitFree(ctx context.Context, m *machine) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for m.phase == reserving || m.phase == adopting {
		changed := m.changed
		p.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-p.last.Done():
			err = errClosed
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		p.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// drop ends a reservation that no init has used. The caller holds mu.
func (p *Pool) drop(r *reservation) {
	delete(p.reservations, r.transaction)
	switch {
	case r.machine == nil:
		p.dequeue(r.place)
	case r.machine.phase == setApart:
		p.warmed(r.machine)
	default:
		r.over = true
	}
	p.stir()
}

// queueFor gives a reservation a place in the queue. The caller holds mu.
func (p *Pool) queueFor(r *reservation) {
	r.machine, r.place = nil, &waiter{ticket: r.ticket, reservation: r}
	p.enqueue(r.place)
}

// keepFor keeps a warm machine for a reservation. The caller holds mu.
func (p *Pool) keepFor(m *machine, r *reservation) {
	r.machine, r.place, m.reservation = m, nil, r
	m.become(reserving)
	p.work.Go(func() { p.putOnRecord(m, &reserved{Transaction: r.transaction, Until: r.until}) })
}

// putOnRecord makes the next process keep the machine too. Where that fails, it is
// kept by this one.
func (p *Pool) putOnRecord(m *machine, reserved *reserved) {
	p.mu.Lock()
	rec := *m.rec
	p.mu.Unlock()
	rec.Reserved = reserved
	err := p.records.write(&rec, !durable)
	if err != nil {
		p.cfg.Log.Warn().Err(err).Str("pool", p.cfg.Name).Str("machine", m.id).Msg("a reservation is not on record")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		m.rec = &rec
	}
	p.reservedNow(m)
}

// unrecord takes the reservation off a machine's record, and makes the machine
// warm. A record that says otherwise is only the next process's to heed, for the
// rest of the reservation's time.
func (p *Pool) unrecord(m *machine) {
	p.mu.Lock()
	rec := *m.rec
	p.mu.Unlock()
	rec.Reserved = nil
	if err := p.records.write(&rec, !durable); err != nil {
		p.cfg.Log.Warn().Err(err).Str("pool", p.cfg.Name).Str("machine", m.id).Msg("the end of a reservation is not on record")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.rec = &rec
	p.warmed(m)
}

// reservedNow gives a machine that is ready to its reservation, or to the init that
// has come meanwhile. The caller holds mu and owns the machine.
func (p *Pool) reservedNow(m *machine) {
	r := m.reservation
	switch {
	case r.over:
		p.warmed(m)
	case r.heir != nil:
		p.hand(m, r.heir)
	default:
		m.since, m.misses = time.Now(), 0
		m.looked = m.since
		m.become(setApart)
		p.connect(m)
		if p.closed && !p.cfg.KeepWarm {
			p.end(m, errClosed)
		}
	}
	p.stir()
}

// hand gives a machine to whom it was kept for. The caller holds mu and owns the
// machine.
func (p *Pool) hand(m *machine, w *waiter) {
	m.reservation = nil
	m.become(taken)
	w.got <- m
}

// inherit gives a new waiter its ticket: that of the transaction's reservation,
// where there is one. A reservation that is returned has a machine, which the waiter
// has got, or gets when it is ready; otherwise the waiter has to queue. The caller
// holds mu.
func (p *Pool) inherit(w *waiter, transaction string) *reservation {
	r := p.reservations[transaction]
	if r == nil {
		p.tickets++
		w.ticket = p.tickets
		return nil
	}
	delete(p.reservations, transaction)
	w.ticket = r.ticket
	switch {
	case r.machine == nil:
		p.dequeue(r.place)
		return nil
	case r.machine.phase == setApart:
		p.hand(r.machine, w)
	default:
		r.heir = w
	}
	return r
}

// queueAgain gives whom a machine was kept for, and which has come to its end, the
// old place in the queue. The caller holds mu.
func (p *Pool) queueAgain(m *machine) {
	r := m.reservation
	m.reservation = nil
	switch {
	case r == nil, r.over, p.closed:
		return
	case r.heir != nil:
		p.enqueue(r.heir)
		r.heir = nil
	default:
		p.queueFor(r)
	}
	p.deal()
}

// takeOverReservation goes on with the reservation that a machine's record tells
// of. The caller holds mu.
func (p *Pool) takeOverReservation(m *machine) {
	old := m.rec.Reserved
	if old == nil || p.reservations[old.Transaction] != nil {
		return
	}
	p.tickets++
	// The clock by which that was written may have been another one.
	until := time.Now().Add(min(time.Until(old.Until), p.cfg.Lease))
	r := &reservation{transaction: old.Transaction, ticket: p.tickets, until: until, machine: m}
	p.reservations[r.transaction], m.reservation = r, r
}

// dropUsed ends reservations whose transaction has a machine: their process died
// before it could take them off the record. The caller holds mu.
func (p *Pool) dropUsed() {
	for _, m := range p.machines {
		if m.claim != nil && p.reservations[m.claim.Transaction] != nil {
			p.drop(p.reservations[m.claim.Transaction])
		}
	}
}
