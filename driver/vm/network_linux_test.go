package vm_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/vm"
)

// network is a network between a delegate and its machines. Each machine has a separate
// address in it. A test can cut it.
type network struct {
	work sync.WaitGroup

	mu        sync.Mutex
	listeners []net.Listener
	conns     map[net.Conn]bool
	lost      map[net.Conn]bool // connections whose other end gets no more data
	made      int               // number of connections so far
	dark      bool              // all data is lost; guarded by mu
}

func newNetwork(tb testing.TB) *network {
	tb.Helper()
	n := &network{conns: map[net.Conn]bool{}, lost: map[net.Conn]bool{}}
	tb.Cleanup(func() {
		n.mu.Lock()
		for _, l := range n.listeners {
			_ = l.Close()
		}
		n.mu.Unlock()
		n.cut(true)
		n.work.Wait()
	})
	return n
}

// forward returns an address that forwards to another one.
func (n *network) forward(tb testing.TB, to string) string {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(context.WithoutCancel(tb.Context()), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	n.mu.Lock()
	n.listeners = append(n.listeners, l)
	n.mu.Unlock()
	n.work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := new(net.Dialer).DialContext(context.Background(), "tcp", to)
			if err != nil {
				out = nil
			}
			n.connect(in, out)
		}
	})
	return l.Addr().String()
}

// connect passes data on. While the network is dark, connections stay open without data.
func (n *network) connect(in, out net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[in] = true
	if out == nil {
		if !n.dark {
			_ = in.Close()
			delete(n.conns, in)
		}
		return
	}
	n.conns[out] = true
	n.made++
	n.work.Go(func() { n.pass(in, out) })
	n.work.Go(func() { n.pass(out, in) })
}

func (n *network) pass(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		k, err := from.Read(buf)
		n.mu.Lock()
		dark := n.dark || n.lost[from]
		n.mu.Unlock()
		if dark && err == nil {
			continue
		}
		if k > 0 {
			if _, werr := to.Write(buf[:k]); werr != nil && err == nil {
				err = werr
			}
		}
		if err == nil {
			continue
		}
		if !dark {
			_ = to.Close()
		}
		return
	}
}

// cut closes all connections, or drops all data from now on without a reset.
func (n *network) cut(aloud bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !aloud {
		n.dark = true
		return
	}
	n.dark = false
	for c := range n.conns {
		_ = c.Close()
	}
	clear(n.conns)
}

// lose drops all data of the current connections, without a reset.
func (n *network) lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		n.lost[c] = true
	}
}

// connections returns the number of connections so far.
func (n *network) connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.made
}

// mend lets data pass again.
func (n *network) mend() { n.cut(true) }

// behind is a provider whose machines are reached through a network.
type behind struct {
	vm.Provider
	tb      testing.TB
	network *network
}

func (b *behind) Create(ctx context.Context, spec vm.Spec) (vm.Machine, error) {
	m, err := b.Provider.Create(ctx, spec)
	if err == nil {
		m.Address = b.network.forward(b.tb, m.Address)
	}
	return m, err
}
