package endtoend_test

import (
	"context"
	"net/http"
	"regexp"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/kubernetes"
)

// podOrders tell a victim where to create its pods.
type podOrders struct {
	Kubeconfig string
	Namespace  string
	AgentImage string
}

// pods returns the driver of a victim in a cluster, with fault points around its calls.
func (f *faultPoints) pods() (victimDriver, error) {
	config, err := clientcmd.BuildConfigFromFlags("", f.Pods.Kubeconfig)
	if err != nil {
		return nil, err
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &faultyCluster{rt, f} })
	d, err := kubernetes.New(kubernetes.Config{REST: config, Namespace: f.Pods.Namespace, AgentImage: f.Pods.AgentImage, Services: true})
	if err != nil {
		return nil, err
	}
	return &forgetful{Driver: d}, nil
}

// forgetful removes the announced steps of every second transaction, so that both kinds of
// containers are created.
type forgetful struct {
	*kubernetes.Driver
	inits atomic.Int64
}

func (d *forgetful) Init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	if d.inits.Add(1)%2 == 0 {
		env.Steps = nil
	}
	return d.Driver.Init(ctx, env, l)
}

type faultyCluster struct {
	http.RoundTripper
	faults *faultPoints
}

// ofPod matches the parts of a path that differ from pod to pod.
var ofPod = regexp.MustCompile(`dlite-[^/]*|/namespaces/[^/]*`)

func (t *faultyCluster) RoundTrip(r *http.Request) (*http.Response, error) {
	call := r.Method + " " + ofPod.ReplaceAllString(r.URL.Path, "")
	if r.URL.Query().Get("watch") != "" {
		call += " watch"
	}
	t.faults.Pass("before " + call)
	defer t.faults.Pass("after " + call)
	return t.RoundTripper.RoundTrip(r)
}
