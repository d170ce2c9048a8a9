package poller

import (
	"context"
	"errors"
	"time"

	"github.com/delegate-io/dlite/client"
)

// heartbeats tells the manager that the delegate is alive, at its interval and
// from a goroutine that waits for nothing else (SPEC P7), until ctx ends: as
// long as there is an answer to deliver, the delegate lives.
func (s *session) heartbeats(ctx context.Context) {
	tick := time.NewTicker(s.heartbeat)
	defer tick.Stop()
	draining := s.draining
	for {
		s.pulse.heartbeat.now()
		select {
		case <-tick.C:
		case <-draining: // tell at once: no more stages
			draining = nil
		case <-ctx.Done():
			return
		}
		s.beat(ctx, draining == nil)
	}
}

// beat sends one heartbeat. It may take no longer than until the next one.
func (s *session) beat(ctx context.Context, draining bool) {
	ctx, cancel := context.WithTimeout(ctx, s.heartbeat)
	defer cancel()
	err := s.client.Heartbeat(ctx, s.registration(s.delegateID(), draining))
	switch {
	case err == nil:
		s.counters.heartbeats.Add(1)
		s.pulse.contact.now()
		return
	case errors.Is(ctx.Err(), context.Canceled): // the end
		return
	case errors.Is(err, client.ErrUnauthorized), errors.Is(err, client.ErrGone):
		s.lost.report(err)
	}
	s.counters.heartbeatErrors.Add(1)
	s.log.Warn().Err(err).Msg("a heartbeat failed")
}
