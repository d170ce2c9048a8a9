package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/driver"
)

// Reserve reserves a machine for the transaction's Init, for at most limit and at most the pool's
// lease. If no machine is warm, it reserves a place in the queue. The reservation of a machine is
// recorded, so the next process keeps it for the remaining time. A place in the queue is lost when
// the process ends.
func (d *Driver) Reserve(ctx context.Context, env *driver.Environment, limit time.Duration) (*driver.Reservation, error) {
	if env.ID == "" || limit <= 0 {
		return nil, fmt.Errorf("reserve a machine: the transaction is %q and the time %v: both must be set", env.ID, limit)
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

// Unreserve ends the transaction's reservation. If it returns no error, a later process does not
// restore it either.
func (d *Driver) Unreserve(ctx context.Context, transaction string) error {
	var errs []error
	for _, p := range d.pools {
		if m := p.unreserve(transaction); m != nil {
			if err := p.awaitFree(ctx, m); err != nil {
				errs = append(errs, fmt.Errorf("return a reserved machine: pool %s: %w", p.cfg.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// reservation is a machine or a place in the queue, reserved for the init of a transaction. The
// pool's mu guards its fields.
type reservation struct {
	transaction string
	ticket      int64
	until       time.Time
	place       *waiter  // place in the queue; nil while it has a machine
	machine     *machine // nil while it is in the queue
	waiter      *waiter  // the init that came before the machine was ready
	cancelled   bool     // the machine becomes free when it is ready
}

// releaseWaiter ends the wait of an init for its reserved machine, because the pool is closed.
func (r *reservation) releaseWaiter() {
	if r != nil && r.waiter != nil {
		close(r.waiter.got)
		r.waiter, r.cancelled = nil, true
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
		p.assignMachines()
		p.signal()
	}
	// The reservation is valid when it is recorded.
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
	result := &driver.Reservation{Pool: p.cfg.Name, Until: r.until}
	if r.machine != nil {
		result.Machine = r.machine.id
	}
	for i, w := range p.queue {
		if w == r.place {
			result.Place = i + 1
		}
	}
	return result, nil
}

// unreserve ends a reservation that no init has used. It returns the machine that becomes free, or
// nil.
func (p *Pool) unreserve(transaction string) *machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.reservations[transaction]
	if r == nil || !p.running {
		return nil
	}
	p.dropReservation(r)
	return r.machine
}

// awaitFree returns when the machine's record has no reservation.
func (p *Pool) awaitFree(ctx context.Context, m *machine) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for m.phase == reserving || m.phase == adopting {
		changed := m.changed
		p.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-p.closing.Done():
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

// dropReservation ends a reservation that no init has used. The caller holds mu.
func (p *Pool) dropReservation(r *reservation) {
	delete(p.reservations, r.transaction)
	switch {
	case r.machine == nil:
		p.dequeue(r.place)
	case r.machine.phase == reservedIdle:
		p.makeWarm(r.machine)
	default:
		r.cancelled = true
	}
	p.signal()
}

// queueFor puts a reservation into the queue. The caller holds mu.
func (p *Pool) queueFor(r *reservation) {
	r.machine, r.place = nil, &waiter{ticket: r.ticket, reservation: r}
	p.enqueue(r.place)
}

// reserveMachine reserves a warm machine. The caller holds mu.
func (p *Pool) reserveMachine(m *machine, r *reservation) {
	r.machine, r.place, m.reservation = m, nil, r
	m.setPhase(reserving)
	p.work.Go(func() { p.recordReservation(m, &reserved{Transaction: r.transaction, Until: r.until}) })
}

// recordReservation makes the reservation survive this process. If that fails, the reservation is
// valid in this process only.
func (p *Pool) recordReservation(m *machine, reserved *reserved) {
	p.mu.Lock()
	rec := *m.rec
	p.mu.Unlock()
	rec.Reserved = reserved
	err := p.records.write(&rec, !durable)
	if err != nil {
		p.cfg.Log.Warn().Err(err).Str("pool", p.cfg.Name).Str("machine", m.id).Msg("could not record a reservation")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		m.rec = &rec
	}
	p.finishReservation(m)
}

// unrecordReservation removes the reservation from the machine's record and makes the machine
// warm. If the write fails, only the next process keeps the reservation, until it expires.
func (p *Pool) unrecordReservation(m *machine) {
	p.mu.Lock()
	rec := *m.rec
	p.mu.Unlock()
	rec.Reserved = nil
	if err := p.records.write(&rec, !durable); err != nil {
		p.cfg.Log.Warn().Err(err).Str("pool", p.cfg.Name).Str("machine", m.id).Msg("could not record the end of a reservation")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.rec = &rec
	p.makeWarm(m)
}

// finishReservation passes a ready machine to its reservation, or to the init that came meanwhile.
// The caller holds mu and owns the machine.
func (p *Pool) finishReservation(m *machine) {
	r := m.reservation
	switch {
	case r.cancelled:
		p.makeWarm(m)
	case r.waiter != nil:
		p.assign(m, r.waiter)
	default:
		m.since, m.misses = time.Now(), 0
		m.checkedAt = m.since
		m.setPhase(reservedIdle)
		p.connect(m)
		if p.closed && !p.cfg.KeepWarm {
			p.end(m, errClosed)
		}
	}
	p.signal()
}

// assign passes a machine to the waiter of its reservation. The caller holds mu and owns the
// machine.
func (p *Pool) assign(m *machine, w *waiter) {
	m.reservation = nil
	m.setPhase(assigned)
	w.got <- m
}

// useReservation gives a new waiter its ticket: the ticket of the transaction's reservation, or a
// new one. If it returns a reservation, the waiter receives the reserved machine now or when that
// is ready. Otherwise the waiter must queue. The caller holds mu.
func (p *Pool) useReservation(w *waiter, transaction string) *reservation {
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
	case r.machine.phase == reservedIdle:
		p.assign(r.machine, w)
	default:
		r.waiter = w
	}
	return r
}

// requeue puts the reservation of a machine that ended back to its old place in the queue. The
// caller holds mu.
func (p *Pool) requeue(m *machine) {
	r := m.reservation
	m.reservation = nil
	switch {
	case r == nil, r.cancelled, p.closed:
		return
	case r.waiter != nil:
		p.enqueue(r.waiter)
		r.waiter = nil
	default:
		p.queueFor(r)
	}
	p.assignMachines()
}

// restoreReservation restores the reservation in a machine's record. The caller holds mu.
func (p *Pool) restoreReservation(m *machine) {
	old := m.rec.Reserved
	if old == nil || p.reservations[old.Transaction] != nil {
		return
	}
	p.tickets++
	// The clock may have changed since the record was written.
	until := time.Now().Add(min(time.Until(old.Until), p.cfg.Lease))
	r := &reservation{transaction: old.Transaction, ticket: p.tickets, until: until, machine: m}
	p.reservations[r.transaction], m.reservation = r, r
}

// dropUsedReservations ends reservations whose transaction has a machine: the earlier process died
// before it removed them from their records. The caller holds mu.
func (p *Pool) dropUsedReservations() {
	for _, m := range p.machines {
		if m.claim != nil && p.reservations[m.claim.Transaction] != nil {
			p.dropReservation(p.reservations[m.claim.Transaction])
		}
	}
}
