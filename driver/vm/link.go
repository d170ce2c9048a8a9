package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver/agent"
)

// A machine that dies without a word, as one in a cloud does, is noticed when a
// ping is not answered: after both of these together. A connection that is closed
// is noticed at once.
const (
	pingAfter   = 800 * time.Millisecond
	pingTimeout = 800 * time.Millisecond
)

// aliveTimeout bounds the question whether a machine is alive, and an attempt to
// reach it.
const aliveTimeout = time.Second

// newTransport makes connections to the agent of a machine.
func newTransport(r *record) (*http.Transport, error) {
	boot := &agent.Boot{CA: r.CA, Cert: r.Cert, Key: r.Key}
	cfg, err := boot.ClientTLS("")
	if err != nil {
		return nil, err
	}
	t := agent.Transport(cfg)
	t.IdleConnTimeout = 0 // pings watch over it
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return t, nil
}

// probeAgent asks the agent of a machine for its health, and keeps no connection.
func probeAgent(ctx context.Context, r *record) error {
	t, err := newTransport(r)
	if err != nil {
		return err
	}
	defer t.CloseIdleConnections()
	return healthy(ctx, agent.NewClient("https://"+r.Address, t))
}

func healthy(ctx context.Context, c *agent.Client) error {
	h, err := c.Health(ctx)
	if err == nil && !h.OK {
		err = errors.New("the agent says that it is not well")
	}
	return err
}

// link is the way to the agent of a claimed machine. It finds out when the machine
// dies.
type link struct {
	pool      *Pool
	patience  time.Duration // see WithUnreachable
	machine   *machine
	gone      <-chan struct{} // the machine's, of this claim
	client    *agent.Client
	transport *http.Transport
	open      bool            // it had a connection when the machine was claimed
	broken    chan struct{}   // gets a value when a connection ends or cannot be made
	ended     context.Context //nolint:containedctx // ends with the link
	end       context.CancelFunc
	done      chan struct{} // closed when nothing is written any more

	mu        sync.Mutex
	closed    bool
	followers []*agent.Follower
}

// newLink makes a link. It has to be ended.
func (d *Driver) newLink(p *Pool, m *machine, r *record, gone <-chan struct{}) (*link, error) {
	way, open, err := p.lineOf(m, r)
	if err != nil {
		return nil, err
	}
	l := &link{
		pool: p, patience: d.unreachable, machine: m, gone: gone, transport: way.transport, open: open,
		broken: make(chan struct{}, 1), done: make(chan struct{}),
	}
	l.ended, l.end = context.WithCancel(context.Background())
	doubt := l.doubt
	way.told.Store(&doubt)
	l.client = agent.NewClient(way.base, way.transport, agent.WithGone(gone))
	go l.watch()
	return l, nil
}

// check asks the agent for its health. A connection from before may have died
// without a word: then a new one decides.
func (l *link) check(ctx context.Context) error {
	err := healthy(ctx, l.client)
	if err != nil && l.open && ctx.Err() == nil {
		l.transport.CloseIdleConnections()
		err = healthy(ctx, l.client)
	}
	return err
}

// watchedConn says when it is closed, which a transport does with one that is
// broken.
type watchedConn struct {
	net.Conn
	closed func()
}

func (c *watchedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// doubt makes the link see whether the machine is still there.
func (l *link) doubt() {
	select {
	case l.broken <- struct{}{}:
	default:
	}
}

// watch is the link's life.
func (l *link) watch() {
	defer close(l.done)
	for over := false; !over; {
		select {
		case <-l.broken:
			over = !l.verify()
		case <-l.gone:
			over = true
		case <-l.ended.Done():
			over = true
		}
	}
	l.mu.Lock()
	l.closed = true
	followers := l.followers
	l.mu.Unlock()
	for _, f := range followers {
		f.Stop()
	}
	l.transport.CloseIdleConnections()
	l.end()
}

// verify finds out whether the machine is there, after a connection to it has
// ended. When it is not, its claim is told.
func (l *link) verify() bool {
	for since := time.Now(); ; {
		ctx, cancel := context.WithTimeout(l.ended, aliveTimeout)
		alive, err := l.pool.provider.Alive(ctx, l.machine.id)
		cancel()
		if err == nil && !alive {
			l.pool.lost(l.machine, l.gone, errDead)
			return false
		}
		ctx, cancel = context.WithTimeout(l.ended, aliveTimeout)
		err = healthy(ctx, l.client)
		cancel()
		select {
		case <-l.broken: // that was this attempt
		default:
		}
		if err == nil {
			return true
		}
		if away := time.Since(since); away > l.patience {
			l.pool.lost(l.machine, l.gone, fmt.Errorf("the machine runs, but its agent has not answered for %v (%w)", away.Round(time.Second), err))
			return false
		}
		again := time.NewTimer(aliveTimeout / 4)
		select {
		case <-again.C:
		case <-l.gone:
			again.Stop()
			return false
		case <-l.ended.Done():
			again.Stop()
			return false
		}
	}
}

// follow makes f end with the link.
func (l *link) follow(f *agent.Follower) {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.followers = append(l.followers, f)
	}
	l.mu.Unlock()
	if closed {
		f.Stop()
	}
}

// close ends the link and waits until nothing is written any more.
func (l *link) close() {
	l.end()
	<-l.done
}
