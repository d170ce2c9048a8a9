package endtoend_test

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cable forwards TCP connections to a manager, and fails as networks do. The proxy of the chaos tests, Toxiproxy, leaks
// goroutines when a connection ends during a change, and this package looks for such leaks.
type cable struct {
	listener net.Listener
	target   string
	ending   context.Context // of the test
	running  sync.WaitGroup

	mu      sync.Mutex
	cut     bool          // new connections are closed
	delayed chan struct{} // not nil: bytes wait until it is closed
	open    []*connection
}

// connection is a connection of both sides. After it is lost, its bytes disappear, and neither side learns of that.
type connection struct {
	sides [2]net.Conn
	lost  bool // guarded by cable.mu
}

func newCable(t *testing.T, target string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	require.NoError(t, err)
	ending, end := context.WithCancel(context.WithoutCancel(t.Context()))
	c := &cable{listener: l, target: target, ending: ending}
	c.running.Go(c.accept)
	t.Cleanup(func() {
		end()
		_ = l.Close()
		c.setCut(true)
		c.running.Wait()
	})
	return c
}

func (c *cable) address() string { return c.listener.Addr().String() }

func (c *cable) accept() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		far, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(c.ending, "tcp", c.target)
		if err != nil {
			_ = near.Close() // the manager is away
			continue
		}
		one := &connection{sides: [2]net.Conn{near, far}}
		c.mu.Lock()
		if c.cut {
			one.close()
		}
		c.open = append(c.open, one)
		c.mu.Unlock()
		c.running.Go(func() {
			var both sync.WaitGroup
			both.Go(func() { c.forward(one, near, far) })
			both.Go(func() { c.forward(one, far, near) })
			both.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.open = slices.DeleteFunc(c.open, func(o *connection) bool { return o == one })
		})
	}
}

func (o *connection) close() {
	for _, side := range o.sides {
		_ = side.Close()
	}
}

// forward copies the bytes of one direction until a side closes the connection.
func (c *cable) forward(one *connection, to io.Writer, from io.Reader) {
	defer one.close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && c.pass(one) {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits while bytes are delayed, and reports whether the bytes of the connection arrive.
func (c *cable) pass(one *connection) bool {
	c.mu.Lock()
	delayed := c.delayed
	c.mu.Unlock()
	if delayed != nil {
		select {
		case <-delayed:
		case <-c.ending.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !one.lost
}

// setCut closes all connections and refuses new ones, or accepts them again.
func (c *cable) setCut(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut = cut; cut {
		for _, o := range c.open {
			o.close()
		}
	}
}

// delay holds all bytes. The result delivers them.
func (c *cable) delay() (deliver func()) {
	held := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delayed = held
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.delayed = nil
		close(held)
	}
}

// lose loses all bytes of the connections that are open now.
func (c *cable) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.open {
		o.lost = true
	}
}
