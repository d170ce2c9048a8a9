package poller

import (
	"sync/atomic"
	"time"
)

// Health is how a poller is doing, for whoever watches its process. The zero
// times have not come yet.
type Health struct {
	// Polling says that Poll runs.
	Polling bool
	// Draining says that no new stages are taken.
	Draining bool
	// Lost says that the manager does not know the delegate, which is about to
	// register again.
	Lost bool
	// HeartbeatTurn and PollTurn are when the loops that must not stop last began
	// a turn. A heartbeat takes no longer than HeartbeatEvery, so a turn comes within
	// twice that; a turn of the poll loop may take as long as the client goes on
	// trying one call.
	HeartbeatTurn, PollTurn time.Time
	// Contact is when the manager last took a registration or a heartbeat.
	Contact time.Time
	// HeartbeatEvery is the interval of the heartbeats.
	HeartbeatEvery time.Duration
}

// Health tells how the poller is doing. It may be called at any time, and waits
// for no lock that is held for long.
func (p *Poller) Health() Health {
	p.mu.Lock()
	s, shutdown := p.session, p.shutdown
	p.mu.Unlock()
	h := Health{
		Draining: shutdown, HeartbeatEvery: p.heartbeat,
		HeartbeatTurn: p.pulse.heartbeat.time(), PollTurn: p.pulse.poll.time(), Contact: p.pulse.contact.time(),
	}
	if s != nil {
		h.Polling, h.Lost = true, s.lost.reason() != nil
		h.Draining = h.Draining || s.isDraining()
	}
	return h
}

// pulse is what Health tells of.
type pulse struct{ heartbeat, poll, contact moment }

// moment is a time with its monotonic reading: a clock that is set does not make
// a loop look dead.
type moment struct{ at atomic.Pointer[time.Time] }

func (m *moment) now() {
	t := time.Now()
	m.at.Store(&t)
}

func (m *moment) time() time.Time {
	if t := m.at.Load(); t != nil {
		return *t
	}
	return time.Time{}
}
