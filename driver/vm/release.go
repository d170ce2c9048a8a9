package vm

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// release ends a claim and returns when nothing of it is left, or an attempt to
// get there has failed, or ctx has ended; the pool goes on in the last two cases.
// A machine that may be used again, and for which reset succeeds, is warm again;
// any other one is destroyed. What is not claimed by that token is not touched.
func (p *Pool) release(ctx context.Context, id, token string, reset func(context.Context, *machine, *record) error) error {
	if !isID(id) {
		return fmt.Errorf("%q is no machine's id", id)
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
		// Ids are never used again, so whatever there is of it is the transaction's.
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(p.last, func() { cancel(errClosed) })()
		return p.destroyOnce(ctx, id)
	}
	attempts := m.attempts
	m.hurry()
	for m.claim != nil && m.claim.Token == token && p.machines[id] == m {
		switch {
		case m.phase == taken && !m.recorded:
			m.condemned = true
			p.mu.Unlock()
			return nil
		case m.phase == claimed && p.running:
			lost := m.reason
			m.become(returning)
			m.fail(errors.New("the transaction has been cleaned up"))
			p.work.Go(func() { p.takeBack(m, lost, reset) })
		case m.attempts > attempts:
			defer p.mu.Unlock()
			return m.err
		}
		changed := m.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-p.last.Done():
			return fmt.Errorf("pool %s: %w", p.cfg.Name, errClosed)
		case <-ctx.Done():
			return fmt.Errorf("waiting for machine %s to be gone: %w", id, context.Cause(ctx))
		}
		p.mu.Lock()
	}
	p.mu.Unlock()
	return nil
}

// takeBack makes a machine warm again, or destroys it: one that was lost in any
// case, as nobody may answer there for as long as a clean-up may take.
func (p *Pool) takeBack(m *machine, lost error, reset func(context.Context, *machine, *record) error) {
	p.mu.Lock()
	rec := *m.rec
	p.mu.Unlock()
	rec.Uses++
	why := errors.New("its transaction is over")
	if lost == nil && rec.Uses < p.cfg.MaxUses && (p.cfg.MaxAge == 0 || time.Since(rec.Born) < p.cfg.MaxAge) {
		if why = p.renew(m, &rec, reset); why == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			m.rec, m.reason, m.gone = &rec, nil, make(chan struct{})
			p.warmed(m)
			return
		}
		p.cfg.Log.Warn().Err(why).Str("pool", p.cfg.Name).Str("machine", m.id).Msg("a machine cannot be used again: destroying it")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(m, why)
}

// renew has the agent remove what the transaction has left, and makes that known.
func (p *Pool) renew(m *machine, rec *record, reset func(context.Context, *machine, *record) error) error {
	ctx, cancel := context.WithTimeout(p.last, p.cfg.DestroyTimeout)
	defer cancel()
	// One that died while nobody talked to it would be waited for, too.
	if alive, err := p.alive(ctx, m.id); err == nil && !alive {
		return errDead
	}
	if err := reset(ctx, m, rec); err != nil {
		return fmt.Errorf("clean it up: %w", err)
	}
	if err := p.probe(ctx, rec); err != nil {
		return fmt.Errorf("see whether it is healthy: %w", err)
	}
	rec.Phase, rec.Claim = warm, nil
	return p.records.write(rec, durable)
}
