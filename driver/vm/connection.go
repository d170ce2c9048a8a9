package vm

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/delegate-io/dlite/driver/agent"
)

// connection is the connection to the agent of one machine. A warm machine has an open one, so the
// transaction's init does not wait for a handshake. Pings keep it open.
type connection struct {
	transport *http.Transport
	base      string
	// onClose is called when a connection ends or cannot be opened.
	onClose atomic.Pointer[func()]
}

func newConnection(r *record) (*connection, error) {
	t, err := newTransport(r)
	if err != nil {
		return nil, err
	}
	l := &connection{transport: t, base: "https://" + r.Address}
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			l.notify()
			return nil, err
		}
		return &watchedConn{Conn: conn, closed: l.notify}, nil
	}
	return l, nil
}

func (l *connection) notify() {
	if f := l.onClose.Load(); f != nil {
		(*f)()
	}
}

func (l *connection) close() { l.transport.CloseIdleConnections() }

// openConnection connects to a machine's agent.
func openConnection(ctx context.Context, r *record) (*connection, error) {
	l, err := newConnection(r)
	if err != nil {
		return nil, err
	}
	if err := healthy(ctx, agent.NewClient(l.base, l.transport)); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// connect opens a connection to a warm machine in the background. If that fails, the claim
// connects. The caller holds mu.
func (p *Pool) connect(m *machine) {
	if p.dial == nil || m.connection != nil || !p.running {
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
		wanted := p.running && m.connection == nil && (m.phase == warm || m.phase == reserving || m.phase == reservedIdle)
		if wanted {
			m.connection = l
		}
		p.mu.Unlock()
		if !wanted {
			l.close()
		}
	})
}

// disconnect closes a machine's connection. The caller holds mu.
func (p *Pool) disconnect(m *machine) {
	if l := m.connection; l != nil {
		m.connection = nil
		p.work.Go(l.close)
	}
}

// takeConnection returns a machine's connection, or a new one.
func (p *Pool) takeConnection(m *machine, r *record) (_ *connection, open bool, err error) {
	p.mu.Lock()
	l := m.connection
	m.connection = nil
	p.mu.Unlock()
	if l != nil {
		return l, true, nil
	}
	if l, err = newConnection(r); err != nil {
		return nil, false, fmt.Errorf("machine %s: %w", m.id, err)
	}
	return l, false, nil
}
