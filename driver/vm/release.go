package vm

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// release ends a claim. It returns when the claim is gone, an attempt has failed, or ctx has
// ended; in the last two cases the pool continues. A machine that may be reused becomes warm again
// if reset succeeds. Any other machine is destroyed. A machine with another token is not changed.
func (p *Pool) release(ctx context.Context, id, token string, reset func(context.Context, *machine, *record) error) error {
	if !isID(id) {
		return fmt.Errorf("%q is not the id of a machine", id)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if !p.enter() {
		return fmt.Errorf("pool %s: %w", p.cfg.Name, errClosed)
	}
	defer p.work.Done()
	p.mu.Lock()
	m := p.machines[id]
	if m == nil {
		p.mu.Unlock()
		// Ids are never reused, so everything with this id belongs to the transaction.
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(p.closing, func() { cancel(errClosed) })()
		return p.destroyOnce(ctx, id)
	}
	attempts := m.attempts
	m.retryNow()
	for m.claim != nil && m.claim.Token == token && p.machines[id] == m {
		switch {
		case m.phase == assigned && !m.recorded:
			m.cancelled = true
			p.mu.Unlock()
			return nil
		case m.phase == claimed && p.running:
			lost := m.reason
			m.setPhase(returning)
			m.markDead(errors.New("the transaction has been cleaned up"))
			p.work.Go(func() { p.takeBack(m, lost, reset) })
		case m.attempts > attempts:
			defer p.mu.Unlock()
			return m.err
		}
		changed := m.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-p.closing.Done():
			return fmt.Errorf("pool %s: %w", p.cfg.Name, errClosed)
		case <-ctx.Done():
			return fmt.Errorf("waiting for machine %s to be gone: %w", id, context.Cause(ctx))
		}
		p.mu.Lock()
	}
	p.mu.Unlock()
	return nil
}

// takeBack makes a machine warm again, or destroys it. It always destroys a lost machine, because
// its agent may not answer.
func (p *Pool) takeBack(m *machine, lost error, reset func(context.Context, *machine, *record) error) {
	p.mu.Lock()
	rec, retired := *m.rec, m.retired
	p.mu.Unlock()
	rec.Uses++
	why := errors.New("its transaction has ended")
	if lost == nil && !retired && rec.Uses < p.cfg.MaxUses && (p.cfg.MaxAge == 0 || time.Since(rec.Born) < p.cfg.MaxAge) {
		if why = p.renew(m, &rec, reset); why == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			m.rec, m.reason, m.gone = &rec, nil, make(chan struct{})
			p.makeWarm(m)
			return
		}
		p.cfg.Log.Warn().Err(why).Str("pool", p.cfg.Name).Str("machine", m.id).Msg("a machine cannot be used again: destroying it")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(m, why)
}

// renew asks the agent to remove the transaction's resources, and records the machine as warm.
func (p *Pool) renew(m *machine, rec *record, reset func(context.Context, *machine, *record) error) error {
	ctx, cancel := context.WithTimeout(p.closing, p.cfg.DestroyTimeout)
	defer cancel()
	// A dead machine would delay the reset until its time-out.
	if alive, err := p.alive(ctx, m.id); err == nil && !alive {
		return errDead
	}
	if err := reset(ctx, m, rec); err != nil {
		return fmt.Errorf("clean it up: %w", err)
	}
	if err := p.probe(ctx, rec); err != nil {
		return fmt.Errorf("check its health: %w", err)
	}
	rec.Phase, rec.Claim = warm, nil
	return p.records.write(rec, durable)
}
