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

// atOnce is how long "at once" may take where the machine is shared: a fraction of
// what anything would be waited for in vain.
const atOnce = time.Minute

// newFault is a place whose API is at hand, and in which nothing must be left when
// the test ends.
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

// withoutAPIServer calls f while there is no API server, and returns when there is
// one again. The whole cluster is without it, so such a test is not parallel.
func (p *place) withoutAPIServer(t *testing.T, f func()) {
	t.Helper()
	p.KillAPIServer(t)
	defer p.StartAPIServer(t)
	f()
}

// announce has the steps known to the init.
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
	// Both are set when over is closed.
	result *driver.Result
	err    error
}

// start runs a step, whose output must contain said before this returns.
func (tx *transaction) start(ctx context.Context, t *testing.T, s stage.Step, said string) *running {
	t.Helper()
	r := &running{t: t, out: drivertest.NewOutput(), over: make(chan struct{})}
	go func() {
		defer close(r.over)
		r.result, r.err = tx.d.Execute(ctx, tx.env, &driver.Step{Step: s}, r.out, tx.ledger)
	}()
	t.Cleanup(func() { <-r.over })
	r.await(said)
	return r
}

// await returns when the step's output contains a text.
func (r *running) await(said string) {
	r.t.Helper()
	limit := time.After(patience)
	for !strings.Contains(r.out.String(), said) {
		select {
		case <-r.out.Wrote():
		case <-r.over:
			if !strings.Contains(r.out.String(), said) {
				require.FailNow(r.t, "the step ended before it said "+said, "%v, %v: %s", r.result, r.err, r.out)
			}
		case <-limit:
			require.FailNow(r.t, "the step does not say "+said, r.out.String())
		}
	}
}

// end waits for the step's end, which must come within limit.
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

// failsAtOnce is the error with which the step ends soon.
func (r *running) failsAtOnce(want kubernetes.Reason) {
	r.t.Helper()
	_, err := r.end(atOnce)
	requireReason(r.t, err, want)
}

func requireReason(t *testing.T, err error, want kubernetes.Reason) {
	t.Helper()
	var e *kubernetes.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, want, e.Reason, "%v", err)
}

// cable is a way to the API server that can be cut.
type cable struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    map[net.Conn]bool // guarded by mu
	cuts     int               // connections that were cut; guarded by mu
}

// layCable puts one between a driver and the API server.
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

// cut breaks all connections. New ones may be made.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.(*net.TCPConn).SetLinger(0) // without a word
		_ = conn.Close()
		c.cuts++
	}
}
