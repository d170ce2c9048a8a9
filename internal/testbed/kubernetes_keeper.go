package testbed

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

//go:embed kubernetes.sh
var clusterScript string

//go:embed kubernetes_keeper.sh
var keeperScript string

// clusterKeeper is the process that holds a cluster. It ends when its input closes, so at the
// latest when this process ends, killed or not.
type clusterKeeper struct {
	mu      sync.Mutex     // held during an order and its answer
	control io.WriteCloser // guarded by mu
	answers *bufio.Reader  // guarded by mu
	cmd     *exec.Cmd
	network clusterNetwork
}

// clusterNetwork connects a cluster to this machine with a pair of virtual interfaces, which
// is removed with the cluster's network.
type clusterNetwork struct {
	host, node string
}

// begin creates the cluster's namespaces. It removes the resources of earlier clusters, so
// only one process may call it at a time.
func (k *clusterKeeper) begin(ctx context.Context, dir string) error {
	for _, name := range []string{"run", "log", "pid"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	log, err := os.Create(filepath.Join(dir, "log", "keeper"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	// No context: the process must outlive this one while it cleans up.
	k.cmd = exec.CommandContext(context.Background(), "sh", "-c", clusterScript, "sh", dir, keeperScript)
	k.cmd.Stderr = log
	in, err := k.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := k.cmd.Start(); err != nil {
		return err
	}
	k.control, k.answers = in, bufio.NewReader(out)
	line, err := k.answers.ReadString('\n')
	pid, up := strings.CutPrefix(strings.TrimSpace(line), "up ")
	if err != nil || !up {
		return fmt.Errorf("%w: the namespaces of a cluster cannot be set up", errUnavailable)
	}
	return k.connect(ctx, pid)
}

// connect creates a virtual interface into the network of a process. The name of our end
// distinguishes clusters, because the kernel allows each name once.
func (k *clusterKeeper) connect(ctx context.Context, pid string) error {
	var errs []error
	for n := range 64 {
		name := fmt.Sprintf("dlitekube%d", n)
		host, node := net.IPv4(198, 18, byte(n), 1).String(), net.IPv4(198, 18, byte(n), 2).String()
		if err := ip(ctx, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", pid); err != nil {
			errs = append(errs, err)
			continue
		}
		k.network = clusterNetwork{host: host, node: node}
		return errors.Join(ip(ctx, "addr", "add", host+"/30", "dev", name), ip(ctx, "link", "set", name, "up"),
			k.order("network", node+"/30", host))
	}
	return fmt.Errorf("connect the cluster: %w", errors.Join(errs...))
}

func ip(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// order sends an order to the keeper and waits for its answer.
func (k *clusterKeeper) order(words ...string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	order := strings.Join(words, " ")
	if _, err := io.WriteString(k.control, order+"\n"); err != nil {
		return fmt.Errorf("%s: %w", order, err)
	}
	line, err := k.answers.ReadString('\n')
	if err == nil && line != "done\n" {
		err = fmt.Errorf("the cluster's keeper says %q", strings.TrimSpace(line))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", order, err)
	}
	return nil
}

// end ends the cluster and returns when all its resources are gone.
func (k *clusterKeeper) end() {
	if k.control != nil {
		_ = k.control.Close()
		_ = k.cmd.Wait() // its status has no meaning
	}
}

// logs returns the end of each part's log.
func (c *Cluster) logs() string {
	var all strings.Builder
	entries, _ := os.ReadDir(filepath.Join(c.dir, "log")) // there is none after an early failure
	for _, e := range entries {
		b, _ := os.ReadFile(filepath.Join(c.dir, "log", e.Name()))
		_, _ = fmt.Fprintf(&all, "--- %s\n%s\n", e.Name(), b[max(0, len(b)-1500):])
	}
	return all.String()
}
