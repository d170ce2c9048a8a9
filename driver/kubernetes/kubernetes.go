package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/recorded"
)

// Driver runs the steps of a transaction in a pod. It is safe for concurrent use.
// Use [New].
type Driver struct {
	cfg   Config
	rest  *rest.Config
	conns *dialer
	http  *http.Client
	api   api
	gate  recorded.Gate
	// registries is the transport for requests to registries.
	registries http.RoundTripper

	// alive ends when the driver is closed. Close waits for the goroutines in work.
	alive context.Context //nolint:containedctx // a lifetime, not the context of a call
	stop  context.CancelFunc
	work  sync.WaitGroup

	mu     sync.Mutex
	pods   map[string]*pod // pods in use, by namespace and name; guarded by mu
	closed bool            // guarded by mu
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Finder     = (*Driver)(nil)
	_ driver.Reattacher = (*Driver)(nil)
)

// Kinds of the resources that this driver records. Their ids are namespace/pod and
// namespace/pod/container, or namespace/pod/service.
const (
	kindPod     = "pod"
	kindStep    = "pod-container"
	kindService = "service"
)

// New creates a driver. It fails if cfg is not valid. It does not call the cluster.
func New(cfg Config) (*Driver, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	rc := rest.CopyConfig(cfg.REST)
	rc.QPS, rc.Burst = -1, -1 // the server limits the rate itself
	conns := &dialer{}
	if rc.Dial == nil {
		rc.Dial = conns.dial
	}
	hc, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	api, err := newAPI(rc, hc)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	d := &Driver{cfg: cfg, rest: rc, conns: conns, http: hc, api: api, registries: registryTransport(cfg.HTTPClient), pods: map[string]*pod{}}
	// The client library would print errors that it also returns.
	d.alive, d.stop = context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	if _, err := d.makePod(&draft{name: recorded.NewName("check"), env: &driver.Environment{ID: "check"}, token: "check"}); err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return d, nil
}

// Infra returns "kubernetes".
func (d *Driver) Infra() string { return "kubernetes" }

// Close stops all work of the driver and waits for its end. The pods and their steps continue
// to run until Cleanup. No method may be called after Close.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.stop()
	d.work.Wait()
	d.http.CloseIdleConnections()
	d.conns.close()
	(&http.Client{Transport: d.registries}).CloseIdleConnections()
	return nil
}

var errClosed = errors.New("the driver is closed")

// goTracked runs f in a goroutine that Close waits for. If the driver is closed, it returns
// false and does not run f.
func (d *Driver) goTracked(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.work.Go(f)
	return true
}
