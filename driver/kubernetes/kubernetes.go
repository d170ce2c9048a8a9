package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
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
	api   corev1client.CoreV1Interface
	gate  recorded.Gate
	// registries is for questions about images.
	registries *http.Transport

	// alive ends with the driver; what runs for it waits in work.
	alive context.Context //nolint:containedctx // a life, and not a call's
	stop  context.CancelFunc
	work  sync.WaitGroup

	mu     sync.Mutex
	pods   map[string]*pod // those in use, by namespace and name; guarded by mu
	closed bool            // guarded by mu
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Finder     = (*Driver)(nil)
	_ driver.Reattacher = (*Driver)(nil)
)

// The kinds of resources that this driver records. Their ids are
// namespace/pod and namespace/pod/container.
const (
	kindPod  = "pod"
	kindStep = "pod-container"
)

// New makes a driver. It fails when cfg is wrong, and does not call the cluster.
func New(cfg Config) (*Driver, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	rc := rest.CopyConfig(cfg.REST)
	rc.QPS, rc.Burst = -1, -1 // the server knows better what it can take
	conns := &dialer{}
	if rc.Dial == nil {
		rc.Dial = conns.dial
	}
	hc, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	api, err := corev1client.NewForConfigAndClient(rc, hc)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	d := &Driver{cfg: cfg, rest: rc, conns: conns, http: hc, api: api, registries: newRegistryClient(), pods: map[string]*pod{}}
	// What the client library would print is told by the errors that it returns.
	d.alive, d.stop = context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	if _, err := d.makePod(&draft{name: recorded.NewName("check"), env: &driver.Environment{ID: "check"}, token: "check"}); err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return d, nil
}

// Infra is "kubernetes".
func (d *Driver) Infra() string { return "kubernetes" }

// Close ends what the driver does for transactions and waits for it. The pods go
// on, with what runs in them, until Cleanup. No method may be called after it.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.stop()
	d.work.Wait()
	d.http.CloseIdleConnections()
	d.conns.close()
	d.registries.CloseIdleConnections()
	return nil
}

var errClosed = errors.New("the driver is closed")

// goes runs f in a goroutine of the driver's. It reports false, without running f,
// when the driver is closed.
func (d *Driver) goes(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.work.Go(f)
	return true
}
