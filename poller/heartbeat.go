package poller

import (
	"context"
	"errors"
	"time"

	"github.com/delegate-io/dlite/client"
)

// heartbeats sends heartbeats at their interval until ctx ends (rule P7). Its
// goroutine waits for nothing else. The delegate lives as long as it has an answer
// to deliver.
func (s *session) heartbeats(ctx context.Context) {
	tick := time.NewTicker(s.heartbeat)
	defer tick.Stop()
	draining := s.draining
	for {
		s.turns.heartbeat.now()
		select {
		case <-tick.C:
		case <-draining: // report the drain at once
			draining = nil
		case <-s.beatNow:
		case <-ctx.Done():
			return
		}
		s.sendHeartbeat(ctx, draining == nil || s.maintained() != nil)
	}
}

// sendHeartbeat sends one heartbeat. The call takes at most one interval.
func (s *session) sendHeartbeat(ctx context.Context, draining bool) {
	ctx, cancel := context.WithTimeout(ctx, s.heartbeat)
	defer cancel()
	beat := s.registration(s.delegateID(), draining)
	beat.Refused = s.refused.Swap(nil)
	err := s.client.Heartbeat(ctx, beat)
	if err != nil && beat.Refused != nil {
		s.refused.CompareAndSwap(nil, beat.Refused) // the next heartbeat reports it
	}
	switch {
	case err == nil:
		s.counters.heartbeats.Add(1)
		s.turns.contact.now()
		return
	case errors.Is(ctx.Err(), context.Canceled): // Poll ends
		return
	case errors.Is(err, client.ErrUnauthorized), errors.Is(err, client.ErrGone):
		s.lost.report(err)
	}
	s.counters.heartbeatErrors.Add(1)
	s.log.Warn().Err(err).Msg("a heartbeat failed")
}
