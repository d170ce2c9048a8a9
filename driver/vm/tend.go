package vm

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// tend keeps the pool as it should be, until it is closed. It decides and starts;
// what takes time has goroutines of its own.
func (p *Pool) tend() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		timer.Reset(p.upkeep(time.Now()))
	}
}

// schedule finds the earliest of several moments.
type schedule struct {
	now  time.Time
	next time.Duration
}

// due says whether a moment has come, and keeps it in mind if not.
func (s *schedule) due(at time.Time) bool {
	wait := at.Sub(s.now)
	if wait > 0 {
		s.next = min(s.next, wait)
	}
	return wait <= 0
}

// upkeep does what is due and returns when something will be.
func (p *Pool) upkeep(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &schedule{now: now, next: time.Hour}
	if !p.running {
		return s.next
	}
	for _, m := range p.machines {
		switch m.phase {
		case warm:
			p.tendWarm(s, m)
		case setApart:
			p.tendHealth(s, m)
		case claimed:
			if m.users == 0 && s.due(m.touched.Add(p.cfg.Lease)) {
				p.cfg.Log.Warn().Str("pool", p.cfg.Name).Str("machine", m.id).Str("transaction", m.claim.Transaction).
					Msg("nobody has asked for a claimed machine for too long: destroying it")
				p.end(m, errors.New("its transaction's lease has ended"))
			}
		}
	}
	for _, r := range p.reservations {
		if s.due(r.until) {
			p.cfg.Log.Warn().Str("pool", p.cfg.Name).Str("transaction", r.transaction).Msg("no init has come for a reservation in time")
			p.drop(r)
		}
	}
	if !p.sweeping && s.due(p.sweepAt) {
		p.sweeping = true
		p.work.Go(p.sweep)
	}
	p.replenish(s)
	return s.next
}

// tendWarm sees to a machine that nobody has claimed. The caller holds mu.
func (p *Pool) tendWarm(s *schedule, m *machine) {
	for i, from := range []time.Time{m.since, m.rec.Born} {
		if m.limits[i] > 0 && s.due(from.Add(m.limits[i])) {
			p.end(m, errors.New("it has become too old"))
			return
		}
	}
	p.tendHealth(s, m)
}

// tendHealth looks at a warm machine, reserved or not, when it is time. The caller
// holds mu.
func (p *Pool) tendHealth(s *schedule, m *machine) {
	if !m.looking && s.due(m.looked.Add(p.cfg.HealthInterval)) {
		m.looking = true
		p.work.Go(func() { p.lookAfter(m) })
	}
}

// lookAfter ends a warm machine that is dead, or has not answered twice.
func (p *Pool) lookAfter(m *machine) {
	err := p.look(p.ctx, m)
	p.mu.Lock()
	defer p.mu.Unlock()
	m.looking = false
	if m.phase != warm && m.phase != setApart || !p.running {
		return
	}
	m.looked = time.Now()
	if err == nil {
		m.misses = 0
		p.connect(m)
		p.stir()
		return
	}
	m.misses++
	if m.misses > 1 || errors.Is(err, errDead) {
		p.discard(m, err)
	} else {
		m.looked = m.looked.Add(-p.cfg.HealthInterval * 9 / 10) // soon again
	}
	p.stir()
}

// discard ends a machine that was warm and is not healthy. The caller holds mu
// and owns the machine.
func (p *Pool) discard(m *machine, err error) {
	p.failed(fmt.Errorf("machine %s was warm and is not healthy: %w", m.id, err))
	p.cfg.Log.Warn().Err(err).Str("pool", p.cfg.Name).Str("machine", m.id).Msg("a warm machine is not healthy: destroying it")
	p.end(m, fmt.Errorf("it was not healthy: %w", err))
}

// replenish makes as many machines as are missing and may be made. The caller
// holds mu.
func (p *Pool) replenish(s *schedule) {
	count := map[phase]int{}
	for _, m := range p.machines {
		count[m.phase]++
	}
	coming := count[creating] + count[adopting]
	missing := p.cfg.Min + len(p.queue) - count[warm] - coming
	n := min(missing, p.cfg.Max-len(p.machines), p.cfg.Parallel-count[creating])
	if p.bad > 0 {
		n = min(n, 1-count[creating]) // until one has come to be, they try one by one
	}
	if n <= 0 || !s.due(p.pause) {
		return
	}
	for range n {
		p.create()
	}
}

// sweep destroys the machines of this pool that no record knows: those of records
// that are lost, and those that a cloud came up with after they had been
// destroyed.
func (p *Pool) sweep() {
	err := p.sweepOnce()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweeping = false
	p.sweepAt = time.Now().Add(p.cfg.SweepInterval)
	if err != nil && p.running {
		p.sweepAt = time.Now().Add(min(p.cfg.SweepInterval, p.cfg.MaxRetry))
		p.failures++
		p.cfg.Log.Error().Err(err).Str("pool", p.cfg.Name).Msg("could not look for machines that no record knows")
	}
	p.stir()
}

func (p *Pool) sweepOnce() error {
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.DestroyTimeout)
	defer cancel()
	ids, err := p.provider.List(ctx, p.records.owner())
	if err != nil {
		return fmt.Errorf("%s: list machines: %w", p.provider.Name(), err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		// A machine is known before it is made, so one that is not known now is not
		// being made either.
		if p.machines[id] != nil || !p.running || !isID(id) {
			continue
		}
		p.cfg.Log.Warn().Str("pool", p.cfg.Name).Str("machine", id).Msg("destroying a machine that no record knows")
		p.end(p.newMachine(id, destroying, &record{ID: id, Phase: destroying}), errors.New("no record knows it"))
	}
	return nil
}
