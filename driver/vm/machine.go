package vm

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/delegate-io/dlite/driver/agent"
)

// Phases that are not recorded. The record has the previous phase.
const (
	adopting     phase = "adopting"  // recorded as warm by an earlier process
	assigned     phase = "assigned"  // warm, and assigned to a waiter that has not confirmed its claim
	returning    phase = "returning" // claimed, and about to become warm or destroyed
	reserving    phase = "reserving" // warm, while its reservation is written to the record or removed from it
	reservedIdle phase = "set apart" // warm, and reserved for the init of a transaction
)

// machine is a machine of a pool. The pool's mu guards its fields, except constant ones. In each
// phase one goroutine owns the machine: it alone changes the phase and writes the record.
//
//	creating ---> warm <--> assigned ---> claimed ---> returning ---> destroying
//	adopting ----^   \______________________________________/  \___> warm
//
//	warm or adopting ---> reserving ---> set apart ---> assigned, or reserving ---> warm
type machine struct {
	id      string
	phase   phase
	bill    *bill
	charged time.Time // the time until which the bill has the machine
	rec     *record   // replaced as a whole, never changed

	since     time.Time        // when it became warm
	limits    [2]time.Duration // MaxIdle and MaxAge with jitter; 0 is unlimited
	checkedAt time.Time        // time of the last health check
	retired   bool             // the cloud recommends to replace it
	misses    int              // consecutive failed health checks
	checking  bool

	connection *connection // to the agent until the machine is claimed; may be nil

	reservation *reservation // nil if the machine is not reserved

	claim     *claim // set in the phases assigned and claimed
	recorded  bool   // the claim is in the transaction's ledger
	cancelled bool   // the transaction's cleanup came before the claim took effect
	users     int    // running calls for the claim
	touched   time.Time

	gone   chan struct{} // closed when the machine is dead or being destroyed
	reason error         // set before gone is closed

	attempts int           // failed attempts to destroy it
	err      error         // of the last attempt
	again    chan struct{} // skips the pause before the next attempt
	changed  chan struct{} // closed and replaced when phase or attempts changes
}

// newMachine adds a machine to the pool. The caller holds mu.
func (p *Pool) newMachine(id string, ph phase, r *record) *machine {
	m := &machine{
		id: id, phase: ph, rec: r, touched: time.Now(), bill: &p.bill, charged: time.Now(),
		gone: make(chan struct{}), again: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	for i, limit := range []time.Duration{p.cfg.MaxIdle, p.cfg.MaxAge} {
		m.limits[i] = limit - rand.N(limit/10+1)
	}
	p.machines[id] = m
	return m
}

// setPhase changes the phase. The caller holds mu and owns the machine.
func (m *machine) setPhase(ph phase) {
	m.charge(time.Now())
	m.phase = ph
	m.notify()
}

// notify wakes goroutines that wait for a change. The caller holds mu.
func (m *machine) notify() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// markDead sets the reason of the machine's end. The caller holds mu.
func (m *machine) markDead(why error) {
	if m.reason == nil {
		m.reason = why
		close(m.gone)
	}
}

// retryNow skips the pause before the next attempt to destroy the machine.
func (m *machine) retryNow() {
	select {
	case m.again <- struct{}{}:
	default:
	}
}

// takeOver adds a machine of an earlier process. The caller holds mu.
func (p *Pool) takeOver(r *record) {
	// The age must not depend on changes of the clock. A time in the future, from another clock,
	// counts as now.
	r.Born = time.Now().Add(min(0, -time.Since(r.Born)))
	m := p.newMachine(r.ID, r.Phase, r)
	// Also while it is being destroyed: its transaction's cleanup waits for that.
	m.claim, m.recorded = r.Claim, r.Claim != nil
	switch r.Phase {
	case warm:
		m.setPhase(adopting)
		p.restoreReservation(m)
		p.work.Go(func() { p.adopt(m) })
	case claimed:
		if r.Claim == nil {
			p.end(m, errors.New("its record has no claim"))
		}
	default:
		p.end(m, errors.New("an earlier process did not finish its creation or destruction"))
	}
}

// adopt makes an earlier process's machine warm if its agent answers.
func (p *Pool) adopt(m *machine) {
	err := p.checkHealth(p.ctx, m)
	if err != nil && p.ctx.Err() == nil {
		err = p.checkHealth(p.ctx, m) // the host may be busy during the start
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil && p.cfg.KeepWarm {
		return // recorded as warm
	}
	if err != nil {
		p.end(m, fmt.Errorf("it belongs to an earlier process and does not answer: %w", err))
		return
	}
	if m.reservation != nil {
		p.finishReservation(m)
		return
	}
	p.makeWarm(m)
}

// checkHealth asks the agent, and if that fails, the provider.
func (p *Pool) checkHealth(ctx context.Context, m *machine) error {
	p.mu.Lock()
	rec := m.rec
	p.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, p.cfg.HealthTimeout)
	defer cancel()
	err := p.probe(bounded, rec)
	if _, ok := isInterrupted(err); ok || err == nil {
		return err
	}
	if alive, aliveErr := p.alive(ctx, m.id); aliveErr == nil && !alive {
		return fmt.Errorf("%w (%w)", errDead, err)
	}
	return err
}

// errDead means that the provider has no such machine, or that it does not run.
var errDead = errors.New("the machine does not run")

func (p *Pool) alive(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.HealthTimeout)
	defer cancel()
	return p.provider.Alive(ctx, id)
}

// makeWarm makes a healthy machine available. The caller holds mu and owns the machine.
func (p *Pool) makeWarm(m *machine) {
	m.reservation = nil
	if m.rec.Reserved != nil {
		m.setPhase(reserving)
		p.work.Go(func() { p.unrecordReservation(m) })
		return
	}
	m.claim, m.recorded, m.cancelled, m.misses = nil, false, false, 0
	m.since = time.Now()
	m.checkedAt = m.since
	m.setPhase(warm)
	if p.closed {
		if !p.cfg.KeepWarm {
			p.end(m, errClosed)
		}
		return
	}
	p.connect(m)
	p.assignMachines()
	p.signal()
}

// create creates a machine in the background. The caller holds mu.
func (p *Pool) create() {
	r := &record{ID: newID(), Phase: creating, Born: time.Now()}
	m := p.newMachine(r.ID, creating, r)
	p.work.Go(func() {
		begin := time.Now()
		err := p.build(p.ctx, m)
		p.mu.Lock()
		defer p.mu.Unlock()
		if err == nil {
			p.failuresInRow, p.lastFailure, p.pausedUntil = 0, nil, time.Time{}
			p.cfg.Log.Debug().Str("pool", p.cfg.Name).Str("machine", m.id).Dur("took", time.Since(begin)).Msg("a machine is warm")
			p.makeWarm(m)
			return
		}
		if p.ctx.Err() == nil {
			p.failed(err)
			p.cfg.Log.Error().Err(err).Str("pool", p.cfg.Name).Str("machine", m.id).Int("in_a_row", p.failuresInRow).
				Dur("next_in", time.Until(p.pausedUntil)).Msg("could not create a machine")
		}
		p.end(m, fmt.Errorf("it could not be created: %w", err))
	})
}

// build calls the provider and waits for the machine's agent.
func (p *Pool) build(ctx context.Context, m *machine) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.BootTimeout, fmt.Errorf("it was not ready within %v", p.cfg.BootTimeout))
	defer cancel()
	rec := *m.rec
	var err error
	if rec.CA, rec.Cert, rec.Key, err = agent.Issue("", rec.Born); err != nil {
		return fmt.Errorf("issue its certificate: %w", err)
	}
	// Durable before any part of the machine exists.
	if err := p.records.write(&rec, durable); err != nil {
		return err
	}
	rec.Machine, err = p.provider.Create(ctx, Spec{
		ID: m.id, Owner: p.records.owner(), Labels: maps.Clone(p.cfg.Labels),
		Boot: func() []byte { return boot(&rec, p.cfg.Metadata) },
	})
	if err != nil {
		return fmt.Errorf("%s: create: %w", p.provider.Name(), errors.Join(err, causeOf(ctx)))
	}
	if err := p.awaitAgent(ctx, &rec); err != nil {
		return err
	}
	rec.Phase = warm
	if err := p.records.write(&rec, durable); err != nil {
		return err
	}
	p.mu.Lock()
	m.rec = &rec
	p.mu.Unlock()
	return nil
}

// causeOf returns the cause of ctx's end, or nil.
func causeOf(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// boot returns the boot of the machine's agent.
func boot(r *record, metadata string) []byte {
	b := agent.Boot{CA: r.CA, Cert: r.Cert, Key: r.Key, Seed: make([]byte, 64), Metadata: metadata}
	_, _ = cryptorand.Read(b.Seed) // documented to never fail
	b.Time = time.Now().UnixNano()
	text, _ := json.Marshal(b) // strings and numbers never fail
	return text
}

// Pauses between attempts to reach a starting agent.
const (
	firstProbe = 20 * time.Millisecond
	lastProbe  = 500 * time.Millisecond
)

// awaitAgent returns when the agent answers, or the machine is dead.
func (p *Pool) awaitAgent(ctx context.Context, r *record) error {
	for wait := firstProbe; ; wait = min(2*wait, lastProbe) {
		bounded, cancel := context.WithTimeout(ctx, p.cfg.HealthTimeout)
		err := p.probe(bounded, r)
		cancel()
		if _, ok := isInterrupted(err); ok || err == nil {
			return err
		}
		if alive, aliveErr := p.alive(ctx, r.ID); aliveErr == nil && !alive {
			return fmt.Errorf("%w, before its agent answered (%w)", errDead, err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("wait for the machine's agent: %w (%w)", context.Cause(ctx), err)
		}
	}
}

// end starts the destruction of a machine. The caller holds mu and owns the machine.
func (p *Pool) end(m *machine, why error) {
	if m.phase == destroying && m.reason != nil {
		return
	}
	m.setPhase(destroying)
	m.markDead(why)
	p.disconnect(m)
	p.requeue(m)
	p.work.Go(func() { p.destroy(m) })
}

// destroy removes a machine and its record. It retries until it succeeds, or the pool is closed;
// then the next process continues.
func (p *Pool) destroy(m *machine) {
	p.mu.Lock()
	rec := *m.rec
	p.mu.Unlock()
	if rec.Phase != destroying {
		rec.Phase = destroying
		// With any other record, the next process destroys the machine too, or waits for a cleanup
		// that does.
		if err := p.records.write(&rec, !durable); err != nil {
			p.cfg.Log.Warn().Err(err).Str("pool", p.cfg.Name).Msg("could not record the end of a machine")
		}
	}
	for {
		err := p.destroyOnce(p.closing, m.id)
		p.mu.Lock()
		if err == nil {
			m.charge(time.Now())
			delete(p.machines, m.id)
			m.notify()
			p.mu.Unlock()
			p.signal()
			return
		}
		p.failures++
		wait := time.NewTimer(p.retryAfter(m.attempts))
		m.attempts++
		m.err = err
		m.notify()
		p.mu.Unlock()
		p.cfg.Log.Error().Err(err).Str("pool", p.cfg.Name).Str("machine", m.id).Msg("could not destroy a machine: retrying")
		select {
		case <-wait.C:
		case <-m.again:
		case <-p.closing.Done():
			wait.Stop()
			return
		}
		wait.Stop()
	}
}

// destroyOnce makes one attempt. It succeeds only if the record is removed, too.
func (p *Pool) destroyOnce(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DestroyTimeout)
	defer cancel()
	if err := p.provider.Destroy(ctx, id); err != nil {
		return fmt.Errorf("%s: destroy machine %s: %w", p.provider.Name(), id, err)
	}
	return p.records.remove(id)
}
