package poller

import (
	"context"
	"errors"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/perpetual"
)

const (
	// reportDelay is the time in which results are collected for one report.
	reportDelay = 100 * time.Millisecond
	// maxReport bounds the size of a report, unless a single result is larger.
	maxReport = 1 << 20
	// noRoomPause is the pause before a result is sent again for which the manager has no room.
	noRoomPause = 5 * time.Second
)

// reportLoop reports results and releases. After a drain it returns when all were
// reported, or at the end of the lease.
func (p *perpetuals) reportLoop() {
	pauses := newBackOff(shortestPause, noRoomPause)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next, done := p.untilReport()
		if done {
			return
		}
		if next > 0 {
			timer.Reset(next)
			select {
			case <-timer.C:
			case <-p.report:
			case <-p.s.delivery.Done():
				return
			}
			continue
		}
		if p.send() {
			pauses.Reset()
		} else {
			pause(p.s.delivery, pauses.NextBackOff(), nil)
		}
	}
}

// untilReport returns the time until the next report. Done means that nothing will follow.
func (p *perpetuals) untilReport() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	ending := p.ending()
	if ending && p.leaseLoopEnded && p.running == 0 && len(p.results) == 0 && len(p.released) == 0 {
		return 0, true
	}
	if ending && p.running == 0 && now.After(p.leaseEnd) {
		p.s.log.Warn().Int("results", len(p.results)).Int("tasks", len(p.released)).
			Msg("the results of perpetual tasks could not be reported before the end of their leases")
		return 0, true
	}
	next := time.Hour
	if len(p.released) > 0 {
		return 0, false
	}
	for _, r := range p.results {
		at := r.ended.Add(reportDelay)
		switch {
		case ending:
			at = r.notBefore
		case r.lazy:
			at = r.queued.Add(max(p.lease/3, time.Second))
		case r.notBefore.After(at):
			at = r.notBefore
		}
		next = min(next, at.Sub(now))
	}
	if ending {
		next = min(next, max(p.leaseEnd.Sub(now), time.Millisecond))
	}
	return max(next, 0), false
}

// collect takes the results and the releases of a report.
func (p *perpetuals) collect() (*perpetual.Report, []*pendingResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updateLeaving()
	out := &perpetual.Report{Session: p.id, Types: p.types, Leaving: p.leaving, Only: true}
	now, size := time.Now(), 0
	var sent []*pendingResult
	waiting := map[perpetual.Claim]bool{} // of results that cannot be sent now
	for _, r := range p.results {
		if r.notBefore.After(now) {
			waiting[r.Claim] = true
			continue
		}
		if size += r.Size(); len(sent) > 0 && size > maxReport || len(sent) == perpetual.MaxResults {
			waiting[r.Claim] = true
			continue
		}
		r.sent = true
		r.StartedAgoMS = min(now.Sub(r.began), perpetual.MaxAge).Milliseconds()
		r.DurationMS = min(r.ended.Sub(r.began).Milliseconds(), r.StartedAgoMS)
		sent = append(sent, r)
		out.Results = append(out.Results, r.Result)
	}
	for _, c := range p.released {
		if (!waiting[c] || p.ending()) && len(out.Released) < perpetual.MaxReleased {
			out.Released = append(out.Released, c)
		}
	}
	return out, sent
}

// send makes one report. It reports false if the manager did not answer.
func (p *perpetuals) send() bool {
	report, sent := p.collect()
	if len(report.Results) == 0 && len(report.Released) == 0 {
		pause(p.s.delivery, reportDelay, nil) // a release waits for its result
		return true
	}
	p.mu.Lock()
	ctx, cancel := context.WithTimeout(p.s.delivery, p.callTime(time.Second)+finalCallTimeout)
	p.mu.Unlock()
	defer cancel()
	begun := time.Now()
	a, err := p.client.ReconcilePerpetual(ctx, p.s.delegateID(), report, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer wakeUp(p.wake)
	if err != nil {
		for _, r := range sent {
			r.sent = false
		}
		if !isRefusedForGood(err) {
			return false
		}
		a = &perpetual.Answer{}
		for _, r := range sent {
			a.Refused = append(a.Refused, perpetual.Refusal{Claim: r.Claim, Run: r.Run, Error: err.Error()})
		}
	}
	p.renewed(time.Duration(a.LeaseMS)*time.Millisecond, begun, false)
	refused := map[uint64]perpetual.Refusal{}
	for _, f := range a.Refused {
		refused[f.Run] = f
	}
	done := map[*pendingResult]bool{}
	for _, r := range sent {
		f, not := refused[r.Run]
		if not && f.Retry && !r.lazy {
			r.sent, r.notBefore = false, time.Now().Add(noRoomPause)
			continue
		}
		done[r] = true
		p.taken(r, f.Error)
	}
	kept := p.results[:0]
	for _, r := range p.results {
		if !done[r] {
			kept = append(kept, r)
		}
	}
	clear(p.results[len(kept):])
	p.results = kept
	gone := make(map[perpetual.Claim]bool, len(report.Released))
	for _, c := range report.Released {
		gone[c] = true
	}
	left := p.released[:0]
	for _, c := range p.released {
		if !gone[c] {
			left = append(left, c)
		}
	}
	p.released = left
	return true
}

// isRefusedForGood reports whether the same report would fail again.
func isRefusedForGood(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && (e.Status == 400 || e.Status == 413)
}
