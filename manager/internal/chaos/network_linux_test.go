package chaos_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// balancer forwards TCP connections to the managers in turns. It skips managers that
// accept no connection.
type balancer struct {
	listener net.Listener
	sockets  []string
	next     atomic.Uint64
	serving  sync.WaitGroup
	ctx      context.Context
}

func newBalancer(t *testing.T, sockets []string) *balancer {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	b := &balancer{listener: l, sockets: sockets, ctx: ctx}
	b.serving.Go(b.serve)
	t.Cleanup(func() { cancel(); _ = l.Close(); b.serving.Wait() })
	return b
}

func (b *balancer) address() string { return b.listener.Addr().String() }

func (b *balancer) serve() {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.serving.Go(func() { b.pass(c) })
	}
}

func (b *balancer) pass(c net.Conn) {
	defer func() { _ = c.Close() }()
	first := b.next.Add(1)
	for i := range uint64(len(b.sockets)) {
		up, err := new(net.Dialer).DialContext(b.ctx, "unix", b.sockets[(first+i)%uint64(len(b.sockets))])
		if err != nil {
			continue
		}
		defer context.AfterFunc(b.ctx, func() { _ = up.Close(); _ = c.Close() })()
		var back sync.WaitGroup
		back.Go(func() { _, _ = io.Copy(c, up); _ = c.Close() })
		_, _ = io.Copy(up, c)
		_ = up.Close()
		back.Wait()
		return
	}
}

// link is a connection that can have network faults.
type link struct {
	t     *testing.T
	name  string
	proxy *toxiproxy.Proxy
}

// newLink returns a link to a TCP address.
func newLink(t *testing.T, server *toxiproxy.ApiServer, name, to string) *link {
	p := toxiproxy.NewProxy(server, name, "127.0.0.1:0", to)
	require.NoError(t, p.Start())
	t.Cleanup(p.Stop)
	return &link{t, name, p}
}

func newToxiproxy() *toxiproxy.ApiServer {
	return toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
}

func (l *link) address() string { return l.proxy.Listen }

// cut resets all connections, including new ones.
func (l *link) cut() func() {
	return l.addToxic(`{"name":"%s","type":"reset_peer","stream":"%[1]s","attributes":{"timeout":0}}`)
}

// swallow drops all data without closing connections.
func (l *link) swallow() func() {
	return l.addToxic(`{"name":"%s","type":"timeout","stream":"%[1]s","attributes":{"timeout":0}}`)
}

// slow delays all data.
func (l *link) slow() func() {
	return l.addToxic(`{"name":"%s","type":"latency","stream":"%[1]s","attributes":{"latency":60,"jitter":50}}`)
}

// addToxic applies a toxic in both directions and returns the function that removes
// it.
func (l *link) addToxic(toxic string) func() {
	for _, stream := range []string{"upstream", "downstream"} {
		if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(toxic, stream))); err != nil {
			l.t.Errorf("%s: %v", l.name, err)
		}
	}
	return func() { l.proxy.Toxics.ResetToxics(context.Background()) }
}
