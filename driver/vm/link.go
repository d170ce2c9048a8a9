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

// A machine in a cloud may die without closing its connections. A missing ping answer reveals
// that, after the sum of both times. A closed connection is noticed at once.
const (
	pingAfter   = 800 * time.Millisecond
	pingTimeout = 800 * time.Millisecond
)

// aliveTimeout limits the question whether a machine is alive, and an attempt to reach it.
const aliveTimeout = time.Second

// newTransport returns a transport for the agent of a machine.
func newTransport(r *record) (*http.Transport, error) {
	boot := &agent.Boot{CA: r.CA, Cert: r.Cert, Key: r.Key}
	cfg, err := boot.ClientTLS("")
	if err != nil {
		return nil, err
	}
	t := agent.Transport(cfg)
	t.IdleConnTimeout = 0 // pings check the connection
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return t, nil
}

// probeAgent asks the agent of a machine for its health. It closes its connection.
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
		err = errors.New("the agent reports that it is not healthy")
	}
	if err != nil {
		return err
	}
	return interrupted(h.Interruption)
}

// link is the connection to the agent of a claimed machine. It detects the machine's death.
type link struct {
	pool        *Pool
	unreachable time.Duration // see Driver
	machine     *machine
	gone        <-chan struct{} // of the machine, for this claim
	client      *agent.Client
	transport   *http.Transport
	open        bool            // it was connected when the machine was claimed
	broken      chan struct{}   // receives a value when a connection ends or cannot be opened
	ended       context.Context //nolint:containedctx // ends with the link
	end         context.CancelFunc
	done        chan struct{} // closed after the last write

	mu        sync.Mutex
	closed    bool
	followers []*agent.Follower
}

// newLink returns a link. The caller must close it.
func (d *Driver) newLink(p *Pool, m *machine, r *record, gone <-chan struct{}) (*link, error) {
	lk, open, err := p.takeConnection(m, r)
	if err != nil {
		return nil, err
	}
	l := &link{
		pool: p, unreachable: d.unreachable, machine: m, gone: gone, transport: lk.transport, open: open,
		broken: make(chan struct{}, 1), done: make(chan struct{}),
	}
	l.ended, l.end = context.WithCancel(context.Background())
	verify := l.requestVerify
	lk.onClose.Store(&verify)
	l.client = agent.NewClient(lk.base, lk.transport)
	l.client.Gone = gone
	go l.watch()
	return l, nil
}

// check asks the agent for its health. An old connection may be dead, so check retries with a new
// one.
func (l *link) check(ctx context.Context) error {
	err := healthy(ctx, l.client)
	if err != nil && l.open && ctx.Err() == nil {
		l.transport.CloseIdleConnections()
		err = healthy(ctx, l.client)
	}
	return err
}

// watchedConn reports its closing. A transport closes broken connections.
type watchedConn struct {
	net.Conn
	closed func()
}

func (c *watchedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// requestVerify makes the link verify that the machine is alive.
func (l *link) requestVerify() {
	select {
	case l.broken <- struct{}{}:
	default:
	}
}

// watch waits for the end of the link or the machine.
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

// verify checks after a lost connection whether the machine is alive. If not, it marks the machine
// as lost.
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
		case <-l.broken: // caused by this attempt
		default:
		}
		if notice, ok := isInterrupted(err); ok && !notice.recommended() {
			l.pool.lost(l.machine, l.gone, notice)
			return false
		} else if ok || err == nil {
			return true
		}
		if away := time.Since(since); away > l.unreachable {
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

// close ends the link and returns after the last write.
func (l *link) close() {
	l.end()
	<-l.done
}
