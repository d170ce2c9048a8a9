package testbed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Cluster is a real Kubernetes with one node. It has its own processes, mounts, control groups
// and network. It has no name service: pods find each other by address or by the variables
// that Kubernetes sets. Its methods are safe for concurrent use.
type Cluster struct {
	// Kubeconfig is a file with an administrator's credentials. Read it with
	// clientcmd.BuildConfigFromFlags("", Kubeconfig).
	Kubeconfig string
	// Server is the API server's URL for this machine.
	Server string
	// Node is the name of the node.
	Node string
	// HostIP is this machine's address in the cluster. Only pods can reach servers that listen
	// there.
	HostIP string
	// Image contains all of busybox. It is on the node, and no registry has it.
	Image string

	dir     string
	program string
	tls     *tls.Config
	keeper  clusterKeeper
	agent   struct {
		sync.Mutex
		image string // guarded by Mutex; empty until it is created
	}
	debian struct {
		sync.Mutex
		images map[string]bool // images on the node; guarded by Mutex
	}
}

// clusterTimeout limits one operation on a cluster. A start takes four seconds on an idle
// machine.
const clusterTimeout = 2 * time.Minute

// sharedCluster is the cluster that all tests of this process share, because starting a
// cluster takes longer than most tests.
var sharedCluster struct {
	sync.Mutex
	cluster *Cluster // guarded by Mutex
	err     error    // guarded by Mutex
}

// errUnavailable means that this machine lacks a requirement.
var errUnavailable = errors.New("unavailable")

// Kubernetes returns the cluster that the tests of this process share. The first call starts
// it. It ends shortly after the process, however the process ends. A test that affects the
// whole cluster must not be parallel. The programs are built from their modules. On a new
// machine that takes minutes and, without a filled module cache, a network. If no cluster can
// run here the test ends, see [Unavailable].
func Kubernetes(tb testing.TB) *Cluster {
	tb.Helper()
	sharedCluster.Lock()
	defer sharedCluster.Unlock()
	if sharedCluster.cluster == nil && sharedCluster.err == nil {
		sharedCluster.cluster, sharedCluster.err = newCluster()
	}
	if err := sharedCluster.err; errors.Is(err, errUnavailable) {
		Unavailable(tb, "kubernetes", "%v", err)
	} else if err != nil {
		tb.Fatalf("start a cluster: %v", err)
	}
	return sharedCluster.cluster
}

func newCluster() (*Cluster, error) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: only root can start a cluster, and on Linux alone", errUnavailable)
	}
	for _, tool := range []string{"unshare", "flock", "ip", "iptables", "containerd", "ctr", "runc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: there is no %s", errUnavailable, tool)
		}
	}
	if _, err := os.Stat(networkPlugins); err != nil {
		return nil, fmt.Errorf("%w: there are no network plug-ins (package containernetworking-plugins)", errUnavailable)
	}
	program, err := buildProgram("kubernetes", ".", "-s -w -X k8s.io/component-base/version.gitVersion="+kubernetesVersion)
	if err != nil {
		return nil, fmt.Errorf("%w: it cannot be built: %v", errUnavailable, err) //nolint:errorlint // one sentinel is enough
	}
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	c := &Cluster{program: program, Node: "node-1", Image: clusterImage}
	if err := c.start(ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, c.logs())
		c.keeper.end()
		return nil, err
	}
	return c, nil
}

// start creates the namespaces and starts the cluster's parts in them.
func (c *Cluster) start(ctx context.Context) error {
	unlock, err := lockFile(filepath.Join(os.TempDir(), "dlite-kubernetes.lock"))
	if err != nil {
		return err
	}
	if c.dir, err = os.MkdirTemp("", "dlite-kubernetes-"); err == nil {
		err = c.keeper.begin(ctx, c.dir)
	}
	unlock()
	if err != nil {
		return err
	}
	if err := c.configure(); err != nil {
		return err
	}
	for _, name := range []string{"etcd", "kube-apiserver", "containerd"} {
		if err := c.keeper.order("start", name); err != nil {
			return err
		}
	}
	// The node's parts and the server's parts start at the same time.
	node := make(chan error, 1)
	go func() { node <- c.startNode(ctx) }()
	return errors.Join(c.startControllers(ctx), <-node, c.awaitNode(ctx))
}

func (c *Cluster) startNode(ctx context.Context) error {
	if err := c.awaitContainerd(ctx); err != nil {
		return err
	}
	if err := c.importOwn(ctx); err != nil {
		return err
	}
	return c.keeper.order("start", "kubelet")
}

func (c *Cluster) startControllers(ctx context.Context) error {
	if err := c.awaitServer(ctx); err != nil {
		return err
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		if err := c.keeper.order("start", name); err != nil {
			return err
		}
	}
	return nil
}

// RestartAPIServer kills the API server, starts it again, and returns when it is ready. All
// connections to it break, also those into pods.
func (c *Cluster) RestartAPIServer(tb testing.TB) {
	tb.Helper()
	c.KillAPIServer(tb)
	c.StartAPIServer(tb)
}

// KillAPIServer kills the API server. Pods continue.
func (c *Cluster) KillAPIServer(tb testing.TB) {
	tb.Helper()
	if err := c.keeper.order("kill", "kube-apiserver"); err != nil {
		tb.Fatal(err)
	}
}

// StartAPIServer starts the API server after [Cluster.KillAPIServer], and returns
// when it is ready.
func (c *Cluster) StartAPIServer(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	err := c.keeper.order("start", "kube-apiserver")
	if err == nil {
		err = c.awaitServer(ctx)
	}
	if err != nil {
		tb.Fatalf("start the API server: %v\n%s", err, c.logs())
	}
}

// KillKubelet kills the kubelet of the node. Pods continue, and changes to them have no effect
// until [Cluster.StartKubelet].
func (c *Cluster) KillKubelet(tb testing.TB) {
	tb.Helper()
	if err := c.keeper.order("kill", "kubelet"); err != nil {
		tb.Fatal(err)
	}
}

// StartKubelet starts the kubelet after [Cluster.KillKubelet], without waiting until it is
// ready.
func (c *Cluster) StartKubelet(tb testing.TB) {
	tb.Helper()
	if err := c.keeper.order("start", "kubelet"); err != nil {
		tb.Fatal(err)
	}
}

// ExhaustMemory simulates that the node runs out of memory: it sets an eviction threshold
// above the free memory. The node evicts its pods one after the other, and accepts no new ones
// until [Cluster.RecoverMemory]. The kubelet checks every ten seconds.
func (c *Cluster) ExhaustMemory(tb testing.TB) {
	tb.Helper()
	c.keepFree(tb, tooMuchMemory)
}

// RecoverMemory ends [Cluster.ExhaustMemory]. It returns when the node accepts pods again.
func (c *Cluster) RecoverMemory(tb testing.TB) {
	tb.Helper()
	c.keepFree(tb, enoughMemory)
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	if err := c.awaitNode(ctx); err != nil {
		tb.Fatalf("%v\n%s", err, c.logs())
	}
}

// keepFree restarts the kubelet with another eviction threshold.
func (c *Cluster) keepFree(tb testing.TB, memory string) {
	tb.Helper()
	c.KillKubelet(tb)
	text := strings.Replace(c.configurations()["kubelet.yaml"], enoughMemory, memory, 1)
	if err := c.write("kubelet.yaml", text); err != nil {
		tb.Fatal(err)
	}
	c.StartKubelet(tb)
}

// Kubectl runs kubectl as an administrator and returns its output.
func (c *Cluster) Kubectl(tb testing.TB, args ...string) (string, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, append([]string{"kubectl", "--kubeconfig", c.Kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
