package poller

import (
	"sync/atomic"
	"time"
)

// Health is the state of a poller. A zero time means that the event has not
// happened yet.
type Health struct {
	// Polling reports whether Poll runs.
	Polling bool
	// Draining reports whether the delegate takes no new stages because it will end.
	Draining bool
	// Maintenance is the reason of the maintenance, or empty (see SetMaintenance).
	Maintenance string
	// Lost reports whether the manager does not know the delegate. The delegate then
	// registers again.
	Lost bool
	// HeartbeatTurn and PollTurn are the times when the heartbeat loop and the poll
	// loop last began a turn. A heartbeat call takes at most HeartbeatEvery, so a
	// turn begins within twice that time. A turn of the poll loop takes as long as
	// the client retries one call.
	HeartbeatTurn, PollTurn time.Time
	// Contact is the time when the manager last accepted a registration or a
	// heartbeat.
	Contact time.Time
	// HeartbeatEvery is the interval of the heartbeats.
	HeartbeatEvery time.Duration
}

// Health returns the state of the poller. It may be called at any time and does
// not block.
func (p *Poller) Health() Health {
	p.mu.Lock()
	s, shutdown, maintenance := p.session, p.shutdown, p.maintenance
	p.mu.Unlock()
	h := Health{
		Draining: shutdown, Maintenance: maintenance, HeartbeatEvery: p.heartbeat,
		HeartbeatTurn: p.turns.heartbeat.time(), PollTurn: p.turns.poll.time(), Contact: p.turns.contact.time(),
	}
	if s != nil {
		h.Polling, h.Lost = true, s.lost.reason() != nil
		h.Draining = h.Draining || s.isDraining()
	}
	return h
}

// lastTurns holds the times that Health returns.
type lastTurns struct{ heartbeat, poll, contact timestamp }

// timestamp is a time with its monotonic reading, so a loop does not look dead
// when the clock is set.
type timestamp struct{ at atomic.Pointer[time.Time] }

func (m *timestamp) now() {
	t := time.Now()
	m.at.Store(&t)
}

func (m *timestamp) time() time.Time {
	if t := m.at.Load(); t != nil {
		return *t
	}
	return time.Time{}
}
