package vm

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maintain maintains the pool until it is closed. It starts a goroutine for each action that takes
// time.
func (p *Pool) maintain() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		timer.Reset(p.maintainOnce(time.Now()))
	}
}

// schedule computes the earliest of several times.
type schedule struct {
	now  time.Time
	next time.Duration
}

// due reports whether the time at has come. If not, it schedules it.
func (s *schedule) due(at time.Time) bool {
	wait := at.Sub(s.now)
	if wait > 0 {
		s.next = min(s.next, wait)
	}
	return wait <= 0
}

// maintainOnce starts all actions that are due, and returns the time until the next one.
func (p *Pool) maintainOnce(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &schedule{now: now, next: time.Hour}
	if !p.running {
		return s.next
	}
	for _, m := range p.machines {
		switch m.phase {
		case warm:
			p.maintainWarm(s, m)
		case reservedIdle:
			p.maintainHealth(s, m)
		case claimed:
			p.maintainNotices(s, m)
			if m.users == 0 && s.due(m.touched.Add(p.cfg.Lease)) {
				p.cfg.Log.Warn().Str("pool", p.cfg.Name).Str("machine", m.id).Str("transaction", m.claim.Transaction).
					Msg("the lease of a claimed machine has expired: destroying it")
				p.end(m, errors.New("its transaction's lease has expired"))
			}
		}
	}
	for _, r := range p.reservations {
		if s.due(r.until) {
			p.cfg.Log.Warn().Str("pool", p.cfg.Name).Str("transaction", r.transaction).Msg("a reservation has expired without an init")
			p.dropReservation(r)
		}
	}
	if !p.sweeping && s.due(p.sweepAt) {
		p.sweeping = true
		p.work.Go(p.sweep)
	}
	p.replenish(s)
	return s.next
}

// maintainWarm replaces a warm machine that is too old, and schedules its health check. The caller
// holds mu.
func (p *Pool) maintainWarm(s *schedule, m *machine) {
	for i, from := range []time.Time{m.since, m.rec.Born} {
		if m.limits[i] > 0 && s.due(from.Add(m.limits[i])) {
			p.end(m, errors.New("it is too old"))
			return
		}
	}
	p.maintainHealth(s, m)
}

// maintainHealth checks the health of a warm machine, reserved or not, when that is due. The
// caller holds mu.
func (p *Pool) maintainHealth(s *schedule, m *machine) {
	if !m.checking && s.due(m.checkedAt.Add(p.healthInterval())) {
		m.checking = true
		p.work.Go(func() { p.checkWarm(m) })
	}
}

// checkWarm ends a warm machine that is dead, or has failed two health checks.
func (p *Pool) checkWarm(m *machine) {
	err := p.checkHealth(p.ctx, m)
	p.mu.Lock()
	defer p.mu.Unlock()
	m.checking = false
	if m.phase != warm && m.phase != reservedIdle || !p.running {
		p.signal()
		return
	}
	m.checkedAt = time.Now()
	if err == nil {
		m.misses = 0
		p.connect(m)
		p.signal()
		return
	}
	m.misses++
	if _, ends := isInterrupted(err); ends || m.misses > 1 || errors.Is(err, errDead) {
		p.discard(m, err)
	} else {
		m.checkedAt = m.checkedAt.Add(-p.cfg.HealthInterval * 9 / 10) // retry soon
	}
	p.signal()
}

// discard ends a warm machine that is not healthy. The caller holds mu and owns the machine.
func (p *Pool) discard(m *machine, err error) {
	if _, ok := isInterrupted(err); ok { // no failure that delays the next machine
		p.cfg.Log.Warn().Err(err).Str("pool", p.cfg.Name).Str("machine", m.id).Msg("a warm machine is taken away: replacing it")
		p.end(m, err)
		return
	}
	p.failed(fmt.Errorf("warm machine %s is not healthy: %w", m.id, err))
	p.cfg.Log.Warn().Err(err).Str("pool", p.cfg.Name).Str("machine", m.id).Msg("a warm machine is not healthy: destroying it")
	p.end(m, fmt.Errorf("it was not healthy: %w", err))
}

// replenish creates the machines that the pool lacks, within its limits, and destroys those that it does not need. The
// caller holds mu.
func (p *Pool) replenish(s *schedule) {
	count := map[phase]int{}
	for _, m := range p.machines {
		count[m.phase]++
	}
	coming := count[creating] + count[adopting]
	needed := p.minimum(s)
	p.shrink(s, needed)
	missing := needed + len(p.queue) - count[warm] - coming
	n := min(missing, p.cfg.Max-len(p.machines), p.cfg.Parallel-count[creating])
	if p.failuresInRow > 0 {
		n = min(n, 1-count[creating]) // after a failure, create one machine at a time
	}
	if n <= 0 || !s.due(p.pausedUntil) {
		return
	}
	for range n {
		p.create()
	}
}

// sweep destroys machines of this pool that have no record: their records were lost, or the cloud
// created them after their destruction.
func (p *Pool) sweep() {
	err := p.sweepOnce()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweeping = false
	p.sweepAt = time.Now().Add(p.cfg.SweepInterval)
	if err != nil && p.running {
		p.sweepAt = time.Now().Add(min(p.cfg.SweepInterval, p.cfg.MaxRetry))
		p.failures++
		p.cfg.Log.Error().Err(err).Str("pool", p.cfg.Name).Msg("could not search for machines without a record")
	}
	p.signal()
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
		// The pool knows a machine before it creates it, so an unknown machine is not being
		// created.
		if p.machines[id] != nil || !p.running || !isID(id) {
			continue
		}
		p.cfg.Log.Warn().Str("pool", p.cfg.Name).Str("machine", id).Msg("destroying a machine without a record")
		p.end(p.newMachine(id, destroying, &record{ID: id, Phase: destroying}), errors.New("it has no record"))
	}
	return nil
}
