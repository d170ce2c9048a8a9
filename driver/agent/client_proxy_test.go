package agent_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// proxy simulates a bad network between client and agent.
type proxy struct {
	target   string
	listener net.Listener
	end      chan struct{}
	work     sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool // both ends of all connections; guarded by mu
	down   bool              // new connections are closed at once; guarded by mu
	frozen chan struct{}     // no data passes until it is closed; nil lets data pass; guarded by mu
	count  int               // connections so far; guarded by mu
	first  [2]int            // bytes that the first connection takes each way, up and down; 0 is any number; guarded by mu
}

func newProxy(target string) (*proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{target: target, listener: l, end: make(chan struct{}), conns: map[net.Conn]bool{}}
	p.work.Go(p.accept)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(c) })
	}
}

func (p *proxy) serve(c net.Conn) {
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		_ = c.Close()
		return
	}
	if !p.track(c, server) {
		return
	}
	room := p.room()
	var both sync.WaitGroup
	for i, way := range [][2]net.Conn{{server, c}, {c, server}} {
		both.Go(func() {
			_, _ = io.Copy(&gate{way[0], p, room[i]}, way[1])
			p.drop(c, server)
		})
	}
	both.Wait()
}

func (p *proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	for _, c := range conns {
		if p.down {
			_ = c.Close()
			continue
		}
		p.conns[c] = true
	}
	return !p.down
}

// cutFirst cuts the next connection after the given number of bytes each way.
func (p *proxy) cutFirst(room [2]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = room
}

// room returns the limits of the next connection.
func (p *proxy) room() (room [2]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	room, p.first = p.first, room
	return room
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// gate passes bytes on unless the proxy is frozen, up to room bytes; 0 is unlimited.
type gate struct {
	net.Conn
	p    *proxy
	room int
}

var errNoRoom = errors.New("the connection is cut here")

// Write implements [io.Writer].
func (g *gate) Write(b []byte) (int, error) {
	g.p.mu.Lock()
	frozen := g.p.frozen
	g.p.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-g.p.end:
		}
	}
	if g.room == 0 {
		return g.Conn.Write(b)
	}
	n, err := g.Conn.Write(b[:min(len(b), g.room)])
	if g.room -= n; err == nil && g.room == 0 {
		err = errNoRoom
	}
	return n, err
}

// cut cuts all current connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok && rand.IntN(2) == 0 {
			_ = tcp.SetLinger(0) // a reset, which loses data in transit
		}
		_ = c.Close()
		delete(p.conns, c)
	}
}

// setDown cuts all connections and refuses new ones, or accepts them again.
func (p *proxy) setDown(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	p.cut()
}

// freeze stops all data without closing connections, until thaw is called.
func (p *proxy) freeze() (thaw func()) {
	frozen := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = frozen
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.frozen = nil
		close(frozen)
	}
}

// connections returns the number of connections so far.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// cutEvery cuts all connections repeatedly while the proxy lives. The pauses are mostly short, and
// sometimes long enough for a large answer on a busy machine.
func (p *proxy) cutEvery(least time.Duration) {
	p.work.Go(func() {
		for {
			select {
			case <-time.After(least << rand.IntN(8)):
				p.cut()
			case <-p.end:
				return
			}
		}
	})
}

func (p *proxy) close() {
	close(p.end)
	_ = p.listener.Close()
	p.setDown(true)
	p.work.Wait()
}
