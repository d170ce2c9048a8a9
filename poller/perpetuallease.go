package poller

import (
	"context"
	"errors"
	"time"

	"github.com/delegate-io/dlite/internal/perpetual"
)

// leaseLoop renews the lease and receives assignments.
func (p *perpetuals) leaseLoop() {
	pauses := newBackOff(shortestPause, longestPause)
	cursor, failing := "", false
	for {
		p.mu.Lock()
		p.updateLeaving()
		if p.ending() {
			p.leaseLoopEnded = true
			wakeUp(p.report)
			p.mu.Unlock()
			return
		}
		lease, wait := p.lease, p.lease/4
		if p.fresh {
			cursor, wait, p.fresh = "", 0, false
		}
		ctx, cancel := context.WithTimeout(p.s.work, p.callTime(wait))
		p.interrupt = cancel
		leaving, late := p.leaving, p.late
		p.mu.Unlock()

		begun := time.Now()
		a, err := p.client.ReconcilePerpetual(ctx, p.s.delegateID(), &perpetual.Report{Session: p.id, Types: p.types, Leaving: leaving, Since: cursor}, wait)
		interrupted := errors.Is(ctx.Err(), context.Canceled)
		cancel()
		switch {
		case err == nil:
			failing = false
			pauses.Reset()
			news := p.apply(a, begun, late)
			cursor = a.Cursor
			if early := lease > 0 && time.Since(begun) < wait/2; !news && early && !interrupted {
				p.pause(min(time.Second, lease/4))
			}
		case interrupted:
			p.refresh()
		default:
			if !failing {
				p.s.log.Warn().Err(err).Msg("cannot renew the leases of perpetual tasks: trying again")
			}
			failing = true
			p.refresh()
			p.pause(pauses.NextBackOff())
		}
	}
}

// refresh makes the next call ask for everything.
func (p *perpetuals) refresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh = true
}

// askAgain makes the loop ask for everything now. The caller holds mu.
func (p *perpetuals) askAgain() {
	p.fresh = true
	if p.interrupt != nil {
		p.interrupt()
	}
}

// callTime bounds a call: a lost one must leave time to renew the lease.
func (p *perpetuals) callTime(wait time.Duration) time.Duration {
	if p.lease == 0 {
		return finalCallTimeout
	}
	return min(max(wait, time.Second), p.lease/3) + p.lease/4
}

// pause waits until d is over, or the drain or the maintenance has changed.
func (p *perpetuals) pause(d time.Duration) {
	ctx, cancel := context.WithTimeout(p.s.work, d)
	defer cancel()
	p.mu.Lock()
	p.interrupt = cancel
	if p.ending() {
		cancel()
	}
	p.mu.Unlock()
	<-ctx.Done()
}

// renewed notes a renewal by a call that began at a time. The margin of a fifth is for
// handlers that end, and for clocks that run differently. A lease that has ended begins
// anew only with an answer that has the assignments.
func (p *perpetuals) renewed(lease time.Duration, begun time.Time, assignments bool) {
	now := time.Now()
	p.expire(now)
	if lease <= 0 || p.lapsed && !assignments {
		return
	}
	p.lease = lease
	if end := begun.Add(lease - lease/5); end.After(p.leaseEnd) {
		p.leaseEnd = end
	}
	p.lapsed = p.lapsed && !now.Before(p.leaseEnd)
}

// expire gives up all tasks if the lease has ended.
func (p *perpetuals) expire(now time.Time) {
	if p.lapsed || now.Before(p.leaseEnd) {
		return
	}
	p.lapsed = true
	if len(p.tasks) > 0 {
		p.s.log.Warn().Int("tasks", len(p.tasks)).Msg("the leases of perpetual tasks were not renewed in time: their runs are cancelled")
	}
	p.s.counters.perpetualLost.Add(int64(len(p.tasks)))
	for _, t := range p.tasks {
		p.lose(t)
	}
	p.askAgain()
}
