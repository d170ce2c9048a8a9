package vm

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/delegate-io/dlite/driver/agent"
)

// line is connections to the agent of one machine. A warm machine has one that is
// open, so that its transaction's init does not wait for a handshake; its pings
// keep it so.
type line struct {
	transport *http.Transport
	base      string
	// told is called when a connection ends or cannot be made.
	told atomic.Pointer[func()]
}

func newLine(r *record) (*line, error) {
	t, err := newTransport(r)
	if err != nil {
		return nil, err
	}
	l := &line{transport: t, base: "https://" + r.Address}
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			l.tell()
			return nil, err
		}
		return &watchedConn{Conn: conn, closed: l.tell}, nil
	}
	return l, nil
}

func (l *line) tell() {
	if f := l.told.Load(); f != nil {
		(*f)()
	}
}

func (l *line) close() { l.transport.CloseIdleConnections() }

// openLine connects to a machine's agent.
func openLine(ctx context.Context, r *record) (*line, error) {
	l, err := newLine(r)
	if err != nil {
		return nil, err
	}
	if err := healthy(ctx, agent.NewClient(l.base, l.transport)); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// connect gives a warm machine a line, in the background. Without one a claim
// connects by itself, so that a failure matters to nobody. The caller holds mu.
func (p *Pool) connect(m *machine) {
	if p.dial == nil || m.line != nil || !p.running {
		return
	}
	rec := m.rec
	p.work.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.cfg.HealthTimeout)
		defer cancel()
		l, err := p.dial(ctx, rec)
		if err != nil {
			return
		}
		p.mu.Lock()
		wanted := p.running && m.line == nil && (m.phase == warm || m.phase == reserving || m.phase == setApart)
		if wanted {
			m.line = l
		}
		p.mu.Unlock()
		if !wanted {
			l.close()
		}
	})
}

// disconnect ends a machine's line. The caller holds mu.
func (p *Pool) disconnect(m *machine) {
	if l := m.line; l != nil {
		m.line = nil
		p.work.Go(l.close)
	}
}

// lineOf takes a machine's line, or makes one.
func (p *Pool) lineOf(m *machine, r *record) (_ *line, open bool, err error) {
	p.mu.Lock()
	l := m.line
	m.line = nil
	p.mu.Unlock()
	if l != nil {
		return l, true, nil
	}
	if l, err = newLine(r); err != nil {
		return nil, false, fmt.Errorf("machine %s: %w", m.id, err)
	}
	return l, false, nil
}
