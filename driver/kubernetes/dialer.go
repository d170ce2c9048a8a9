package kubernetes

import (
	"context"
	"net"
	"sync"
	"time"
)

// dialer creates the connections to the API server, and closes all of them when the driver
// is closed. The zero value is ready for use.
type dialer struct {
	mu     sync.Mutex
	conns  map[*dialled]struct{} // guarded by mu
	closed bool                  // guarded by mu
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	one := &dialled{Conn: conn, of: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	if d.conns == nil {
		d.conns = map[*dialled]struct{}{}
	}
	d.conns[one] = struct{}{}
	return one, nil
}

// close closes all connections.
func (d *dialer) close() {
	d.mu.Lock()
	d.closed = true
	conns := d.conns
	d.conns = nil
	d.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close()
	}
}

type dialled struct {
	net.Conn
	of *dialer
}

// Close implements [net.Conn].
func (c *dialled) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
