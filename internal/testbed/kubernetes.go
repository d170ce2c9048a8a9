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

// Cluster is a real Kubernetes of one node, with processes, mounts, control
// groups and a network of its own. It has no name service: pods find each other
// by address or by the variables that Kubernetes gives them. Its methods are safe
// for concurrent use.
type Cluster struct {
	// Kubeconfig is a file with an administrator's credentials, to be read with
	// clientcmd.BuildConfigFromFlags("", Kubeconfig).
	Kubeconfig string
	// Server is the API server's URL, as it is from this machine.
	Server string
	// Node is the name of its node.
	Node string
	// HostIP is the address of this machine in the cluster: what listens there is
	// for pods to reach, and nobody else.
	HostIP string
	// Image has all of busybox, and no registry: it is on the node.
	Image string

	dir     string
	program string
	tls     *tls.Config
	keeper  clusterKeeper
	agent   struct {
		sync.Mutex
		image string // guarded by Mutex; empty until it is made
	}
	debian struct {
		sync.Mutex
		images map[string]bool // those that the node has; guarded by Mutex
	}
}

// clusterTimeout bounds what is done with a cluster at once. A start takes four
// seconds where nothing else runs.
const clusterTimeout = 2 * time.Minute

// sharedCluster is the cluster of this process, whose tests share it: each of
// them starting one would take longer than what they test.
var sharedCluster struct {
	sync.Mutex
	cluster *Cluster // guarded by Mutex
	err     error    // guarded by Mutex
}

// errUnavailable is about what this machine does not have.
var errUnavailable = errors.New("unavailable")

// Kubernetes starts a cluster at its first call. The tests of this process share
// it, and it ends with the process, however that ends, a moment later. A test
// that does something to the whole cluster must not be parallel. The programs are
// built from their modules, which takes minutes for the first time on a machine
// and, if they are not there yet, a network. Where there is no cluster to be had
// the test ends, see [Unavailable].
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

// start makes the namespaces and starts in them what a cluster is made of.
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
	// The node's half and the server's do not need each other to begin.
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

// RestartAPIServer kills the API server and starts it again, and returns when it
// is ready. Every connection to it breaks, also those into pods.
func (c *Cluster) RestartAPIServer(tb testing.TB) {
	tb.Helper()
	c.KillAPIServer(tb)
	c.StartAPIServer(tb)
}

// KillAPIServer kills the API server. What runs in pods goes on.
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

// KillKubelet kills what looks after the node's pods. They go on, and what is
// asked of them is not done until [Cluster.StartKubelet].
func (c *Cluster) KillKubelet(tb testing.TB) {
	tb.Helper()
	if err := c.keeper.order("kill", "kubelet"); err != nil {
		tb.Fatal(err)
	}
}

// StartKubelet starts the kubelet after [Cluster.KillKubelet], and does not wait for
// it.
func (c *Cluster) StartKubelet(tb testing.TB) {
	tb.Helper()
	if err := c.keeper.order("start", "kubelet"); err != nil {
		tb.Fatal(err)
	}
}

// ExhaustMemory has the node run out of memory: it keeps more free than there is, so
// that it evicts its pods, one after the other, and takes new ones no more, until
// [Cluster.RecoverMemory]. The kubelet looks every ten seconds.
func (c *Cluster) ExhaustMemory(tb testing.TB) {
	tb.Helper()
	c.keepFree(tb, tooMuchMemory)
}

// RecoverMemory is the end of [Cluster.ExhaustMemory]. It returns when the node takes
// pods again.
func (c *Cluster) RecoverMemory(tb testing.TB) {
	tb.Helper()
	c.keepFree(tb, enoughMemory)
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	if err := c.awaitNode(ctx); err != nil {
		tb.Fatalf("%v\n%s", err, c.logs())
	}
}

// keepFree restarts the kubelet with another threshold of eviction.
func (c *Cluster) keepFree(tb testing.TB, memory string) {
	tb.Helper()
	c.KillKubelet(tb)
	text := strings.Replace(c.configurations()["kubelet.yaml"], enoughMemory, memory, 1)
	if err := c.write("kubelet.yaml", text); err != nil {
		tb.Fatal(err)
	}
	c.StartKubelet(tb)
}

// Kubectl runs kubectl as an administrator and returns what it wrote.
func (c *Cluster) Kubectl(tb testing.TB, args ...string) (string, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, append([]string{"kubectl", "--kubeconfig", c.Kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
