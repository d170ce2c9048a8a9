package kubernetes_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/driver/kubernetes"
	"github.com/delegate-io/dlite/task/stage"
)

// atOnce is the limit for events that happen at once, on a shared machine. It is much shorter
// than any time-out of the driver.
const atOnce = time.Minute

// newFault returns a place and the API of its cluster. It checks at the end of the test that
// the driver left nothing in the place.
func newFault(t *testing.T) (*place, corev1client.CoreV1Interface) {
	t.Helper()
	p := newPlace(t)
	secure, err := rest.TLSConfigFor(p.rest)
	require.NoError(t, err)
	api, err := corev1client.NewForConfigAndClient(p.rest, &http.Client{Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NotContains(t, p.kubectl(t, "get", "pods,secrets", "--output", "name", "--field-selector", "metadata.name!=registry"), "dlite-")
	})
	return p, api
}

// withoutAPIServer calls f while there is no API server, and returns when it runs again. It
// affects the whole cluster, so such a test is not parallel.
func (p *place) withoutAPIServer(t *testing.T, f func()) {
	t.Helper()
	p.KillAPIServer(t)
	defer p.StartAPIServer(t)
	f()
}

// announce announces the steps to the init.
func announce(steps ...stage.Step) func(*driver.Environment) {
	return func(env *driver.Environment) {
		for _, s := range steps {
			env.Steps = append(env.Steps, &s)
		}
	}
}

// running is a step that has been started.
type running struct {
	t    *testing.T
	out  *drivertest.Output
	over chan struct{}
	// result and err are set when over is closed.
	result *driver.Result
	err    error
}

// start runs a step, and returns when its output contains text.
func (tx *transaction) start(ctx context.Context, t *testing.T, s stage.Step, text string) *running {
	t.Helper()
	r := &running{t: t, out: drivertest.NewOutput(), over: make(chan struct{})}
	go func() {
		defer close(r.over)
		r.result, r.err = tx.d.Execute(ctx, tx.env, &driver.Step{Step: s}, r.out, tx.ledger)
		r.result.End()
	}()
	t.Cleanup(func() { <-r.over })
	r.await(text)
	return r
}

// await returns when the output of the step contains text.
func (r *running) await(text string) {
	r.t.Helper()
	limit := time.After(patience)
	for !strings.Contains(r.out.String(), text) {
		select {
		case <-r.out.Wrote():
		case <-r.over:
			if !strings.Contains(r.out.String(), text) {
				require.FailNow(r.t, "the step ended before it wrote "+text, "%v, %v: %s", r.result, r.err, r.out)
			}
		case <-limit:
			require.FailNow(r.t, "the step does not write "+text, r.out.String())
		}
	}
}

// end waits until the step ends, at most for limit.
func (r *running) end(limit time.Duration) (*driver.Result, error) {
	r.t.Helper()
	select {
	case <-r.over:
		return r.result, r.err
	case <-time.After(limit):
		require.FailNow(r.t, "the step does not end", "within %s: %s", limit, r.out)
		return nil, nil
	}
}

// failsAtOnce checks that the step fails at once with the reason want.
func (r *running) failsAtOnce(want string) {
	r.t.Helper()
	_, err := r.end(atOnce)
	requireReason(r.t, err, want)
}

func requireReason(t *testing.T, err error, want string) {
	t.Helper()
	var e *kubernetes.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, want, e.Reason, "%v", err)
}

// cable is a connection to the API server that a test can cut.
type cable struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    map[net.Conn]bool // guarded by mu
	cuts     int               // connections that were cut; guarded by mu
}

// layCable returns a cable between a driver and the API server.
func layCable(t *testing.T, config *rest.Config) *cable {
	t.Helper()
	to, err := url.Parse(config.Host)
	require.NoError(t, err)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cable{listener: l, target: to.Host, conns: map[net.Conn]bool{}}
	config.Host = "https://" + l.Addr().String()
	config.ServerName = "kubernetes"
	c.wg.Go(c.serve)
	t.Cleanup(func() {
		_ = l.Close()
		c.cut()
		c.wg.Wait()
	})
	return c
}

func (c *cable) serve() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", c.target) //nolint:noctx // it is on this machine
		if err != nil {
			_ = near.Close()
			continue
		}
		c.mu.Lock()
		c.conns[near], c.conns[far] = true, true
		c.mu.Unlock()
		for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
			c.wg.Go(func() {
				_, _ = io.Copy(pair[0], pair[1])
				_ = pair[0].Close()
				_ = pair[1].Close()
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.conns, pair[0])
				delete(c.conns, pair[1])
			})
		}
	}
}

// cut breaks all connections. The driver can open new ones.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.(*net.TCPConn).SetLinger(0) // with a reset
		_ = conn.Close()
		c.cuts++
	}
}
