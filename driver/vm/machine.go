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

// Phases that no record has: what they mean for another process is that of the
// phase before.
const (
	adopting  phase = "adopting"  // warm, says an earlier process
	taken     phase = "taken"     // warm, and given to somebody who has not claimed it yet
	returning phase = "returning" // claimed, and about to be warm again or destroyed
	reserving phase = "reserving" // warm, and its reservation is being put on record, or taken off it
	setApart  phase = "set apart" // warm, and kept for the init of a transaction
)

// machine is one of a pool's. Its fields are guarded by the pool's mu, but for
// those that never change. What changes the phase belongs to whoever the phase
// says: one goroutine at a time, which alone writes the record.
//
//	creating ---> warm <--> taken ---> claimed ---> returning ---> destroying
//	adopting ----^   \________________________________/  \___> warm
//
//	warm or adopting ---> reserving ---> set apart ---> taken, or reserving ---> warm
type machine struct {
	id    string
	phase phase
	rec   *record // replaced as a whole, never changed

	since   time.Time        // when it became warm
	limits  [2]time.Duration // MaxIdle and MaxAge as they are for this one, 0 is none
	looked  time.Time        // when its health was seen last
	misses  int              // looks in a row that failed
	looking bool

	line *line // to the agent, while nobody has claimed it; may be nil

	reservation *reservation // what it is kept for; nil if for nobody

	claim     *claim // of whoever has taken or claimed it
	recorded  bool   // the claim is in the transaction's ledger
	condemned bool   // the claim's cleanup came before the claim took effect
	users     int    // calls under way for the claim
	touched   time.Time

	gone   chan struct{} // closed when it is dead or is being destroyed
	reason error         // why, set before gone is closed

	attempts int           // to destroy it that failed
	err      error         // of the last one
	again    chan struct{} // makes the next attempt come at once
	changed  chan struct{} // closed and replaced when the phase, or attempts, has changed
}

// newMachine is one that the pool knows from now on. The caller holds mu.
func (p *Pool) newMachine(id string, ph phase, r *record) *machine {
	m := &machine{
		id: id, phase: ph, rec: r, touched: time.Now(),
		gone: make(chan struct{}), again: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	for i, limit := range []time.Duration{p.cfg.MaxIdle, p.cfg.MaxAge} {
		m.limits[i] = limit - rand.N(limit/10+1)
	}
	p.machines[id] = m
	return m
}

// become changes the phase. The caller holds mu and owns the machine.
func (m *machine) become(ph phase) {
	m.phase = ph
	m.tell()
}

// tell wakes whoever waits for a change. The caller holds mu.
func (m *machine) tell() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// fail says that the machine is of no use any more. The caller holds mu.
func (m *machine) fail(why error) {
	if m.reason == nil {
		m.reason = why
		close(m.gone)
	}
}

// hurry makes the next attempt to destroy it come at once.
func (m *machine) hurry() {
	select {
	case m.again <- struct{}{}:
	default:
	}
}

// takeOver makes a machine of an earlier process one of this pool. The caller
// holds mu.
func (p *Pool) takeOver(r *record) {
	// It counts from now on whatever becomes of the clock, and from now at the latest:
	// the clock by which it was born may have been ahead.
	r.Born = time.Now().Add(min(0, -time.Since(r.Born)))
	m := p.newMachine(r.ID, r.Phase, r)
	// Also of one that is being destroyed: its transaction's cleanup waits for that.
	m.claim, m.recorded = r.Claim, r.Claim != nil
	switch r.Phase {
	case warm:
		m.become(adopting)
		p.takeOverReservation(m)
		p.work.Go(func() { p.adopt(m) })
	case claimed:
		if r.Claim == nil {
			p.end(m, errors.New("its claim is not known"))
		}
	default:
		p.end(m, errors.New("an earlier process had not finished with it"))
	}
}

// adopt makes a machine warm whose agent still answers.
func (p *Pool) adopt(m *machine) {
	err := p.look(p.ctx, m)
	if err != nil && p.ctx.Err() == nil {
		err = p.look(p.ctx, m) // the host may be busy with starting us
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil && p.cfg.KeepWarm {
		return // it is on record as warm
	}
	if err != nil {
		p.end(m, fmt.Errorf("it was left by an earlier process and does not answer: %w", err))
		return
	}
	if m.reservation != nil {
		p.reservedNow(m)
		return
	}
	p.warmed(m)
}

// look asks a machine for its health, and its provider for its life.
func (p *Pool) look(ctx context.Context, m *machine) error {
	p.mu.Lock()
	rec := m.rec
	p.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, p.cfg.HealthTimeout)
	defer cancel()
	err := p.probe(bounded, rec)
	if err == nil {
		return nil
	}
	if alive, aliveErr := p.alive(ctx, m.id); aliveErr == nil && !alive {
		return fmt.Errorf("%w (%w)", errDead, err)
	}
	return err
}

// errDead says that the provider has no such machine, or one that does not run.
var errDead = errors.New("the machine does not run any more")

func (p *Pool) alive(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.HealthTimeout)
	defer cancel()
	return p.provider.Alive(ctx, id)
}

// warmed puts a healthy machine where it can be claimed. The caller holds mu and
// owns the machine.
func (p *Pool) warmed(m *machine) {
	m.reservation = nil
	if m.rec.Reserved != nil {
		m.become(reserving)
		p.work.Go(func() { p.unrecord(m) })
		return
	}
	m.claim, m.recorded, m.condemned, m.misses = nil, false, false, 0
	m.since = time.Now()
	m.looked = m.since
	m.become(warm)
	if p.closed {
		if !p.cfg.KeepWarm {
			p.end(m, errClosed)
		}
		return
	}
	p.connect(m)
	p.deal()
	p.stir()
}

// create makes a new machine. The caller holds mu.
func (p *Pool) create() {
	r := &record{ID: newID(), Phase: creating, Born: time.Now()}
	m := p.newMachine(r.ID, creating, r)
	p.work.Go(func() {
		begin := time.Now()
		err := p.build(p.ctx, m)
		p.mu.Lock()
		defer p.mu.Unlock()
		if err == nil {
			p.bad, p.why, p.pause = 0, nil, time.Time{}
			p.cfg.Log.Debug().Str("pool", p.cfg.Name).Str("machine", m.id).Dur("took", time.Since(begin)).Msg("a machine is warm")
			p.warmed(m)
			return
		}
		if p.ctx.Err() == nil {
			p.failed(err)
			p.cfg.Log.Error().Err(err).Str("pool", p.cfg.Name).Str("machine", m.id).Int("in_a_row", p.bad).
				Dur("next_in", time.Until(p.pause)).Msg("could not make a machine")
		}
		p.end(m, fmt.Errorf("it could not be made: %w", err))
	})
}

// build has the provider make the machine and waits for its agent.
func (p *Pool) build(ctx context.Context, m *machine) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.BootTimeout, fmt.Errorf("it was not ready within %v", p.cfg.BootTimeout))
	defer cancel()
	rec := *m.rec
	var err error
	if rec.CA, rec.Cert, rec.Key, err = agent.Issue("", rec.Born); err != nil {
		return fmt.Errorf("issue its certificate: %w", err)
	}
	// Durable before anything of the machine exists.
	if err := p.records.write(&rec, durable); err != nil {
		return err
	}
	rec.Machine, err = p.provider.Create(ctx, Spec{
		ID: m.id, Owner: p.records.owner(), Labels: maps.Clone(p.cfg.Labels),
		Boot: func() []byte { return boot(&rec) },
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

// causeOf is why ctx has ended, and nil while it has not.
func causeOf(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// boot is what the machine's agent is told.
func boot(r *record) []byte {
	b := agent.Boot{CA: r.CA, Cert: r.Cert, Key: r.Key, Seed: make([]byte, 64)}
	_, _ = cryptorand.Read(b.Seed) // never fails, says its documentation
	b.Time = time.Now().UnixNano()
	text, _ := json.Marshal(b) // of strings and numbers alone
	return text
}

// Between two attempts to reach an agent that is starting. Nobody tells when it
// is there.
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
		if err == nil {
			return nil
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

// end begins to destroy a machine. The caller holds mu and owns the machine.
func (p *Pool) end(m *machine, why error) {
	if m.phase == destroying && m.reason != nil {
		return
	}
	m.become(destroying)
	m.fail(why)
	p.disconnect(m)
	p.queueAgain(m)
	p.work.Go(func() { p.destroy(m) })
}

// destroy removes a machine and its record, however often it takes. Only the end
// of the pool keeps it from that, and then the next process goes on.
func (p *Pool) destroy(m *machine) {
	p.mu.Lock()
	rec := *m.rec
	p.mu.Unlock()
	if rec.Phase != destroying {
		rec.Phase = destroying
		// Whatever the record says instead makes another process destroy the machine
		// too, or wait for a cleanup that does.
		if err := p.records.write(&rec, !durable); err != nil {
			p.cfg.Log.Warn().Err(err).Str("pool", p.cfg.Name).Msg("the end of a machine is not on record")
		}
	}
	for {
		err := p.destroyOnce(p.last, m.id)
		p.mu.Lock()
		if err == nil {
			delete(p.machines, m.id)
			m.tell()
			p.mu.Unlock()
			p.stir()
			return
		}
		p.failures++
		wait := time.NewTimer(p.retryAfter(m.attempts))
		m.attempts++
		m.err = err
		m.tell()
		p.mu.Unlock()
		p.cfg.Log.Error().Err(err).Str("pool", p.cfg.Name).Str("machine", m.id).Msg("could not destroy a machine, it is tried again")
		select {
		case <-wait.C:
		case <-m.again:
		case <-p.last.Done():
			wait.Stop()
			return
		}
		wait.Stop()
	}
}

// destroyOnce tries it. A machine whose record is there counts as not destroyed.
func (p *Pool) destroyOnce(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DestroyTimeout)
	defer cancel()
	if err := p.provider.Destroy(ctx, id); err != nil {
		return fmt.Errorf("%s: destroy machine %s: %w", p.provider.Name(), id, err)
	}
	return p.records.remove(id)
}
