//go:build unix

package local_test

import (
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

// callCounter lists the calls to an engine, except for those that take over the connection (attach).
type callCounter struct {
	next  http.RoundTripper
	mu    sync.Mutex
	calls []string // guarded by mu
}

func (c *callCounter) RoundTrip(req *http.Request) (*http.Response, error) {
	what := req.Method + " " + path.Base(req.URL.Path)
	if req.Method == http.MethodDelete { // the last part of the path is a name
		what = req.Method + " " + path.Base(path.Dir(req.URL.Path))
	}
	c.mu.Lock()
	c.calls = append(c.calls, what)
	c.mu.Unlock()
	return c.next.RoundTrip(req)
}

// taken returns the calls since the previous call, sorted: the order of calls in the background is not
// fixed.
func (c *callCounter) taken() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.calls)
	list := strings.Join(c.calls, ", ")
	c.calls = nil
	return list
}

// A container step makes as few calls as possible: it asks for nothing that the driver knows, and
// tells the engine nothing twice.
func TestContainerStepsMakeFewCalls(t *testing.T) {
	t.Parallel()
	engine := testbed.Docker(t)
	transport := engine.Client.HTTPClient()
	counter := &callCounter{next: transport.Transport}
	transport.Transport = counter
	cli, err := client.NewClientWithOpts(client.FromEnv, client.WithHTTPClient(transport), client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	t.Cleanup(func() { _ = cli.Close() })
	r := newRigChecked(t, engine, withDockerClient(cli))
	r.init()
	require.Empty(t, counter.taken(), "init asks the engine for nothing")

	r.run(in(engine.Image, sh("first", "true")))
	left, err := r.d.Cleanup(t.Context(), r.ledger.ofKind("container")) // the container is gone after this
	require.NoError(t, err)
	require.Empty(t, left)
	r.ledger.forget("container")
	counter.taken() // the number of pings depends on the client

	r.run(in(engine.Image, sh("second", "true")))
	r.run(in(engine.Image, sh("failing", "exit 1")))
	r.cleanup()
	require.Equal(t, "DELETE containers, DELETE containers, DELETE networks, GET json, GET json, GET json, "+
		"POST create, POST create, POST start, POST start, POST wait, POST wait", counter.taken(),
		"a look at the image and at a failure; and the cleanup knows that the containers are gone")
}
