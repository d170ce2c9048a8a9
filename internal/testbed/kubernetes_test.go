package testbed_test

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

// Not parallel: it restarts the API server that the other tests use.
func TestAnAPIServerComesBackWithItsData(t *testing.T) {
	c := testbed.Kubernetes(t)
	ns := c.NewNamespace(t)
	_, err := c.Kubectl(t, "--namespace", ns, "create", "configmap", "kept")
	require.NoError(t, err)
	c.KillAPIServer(t)
	_, err = c.Kubectl(t, "--namespace", ns, "get", "configmap", "kept")
	require.Error(t, err)
	c.StartAPIServer(t)
	out, err := c.Kubectl(t, "--namespace", ns, "get", "configmap", "kept")
	require.NoError(t, err, out)
}

func TestAClusterRunsAPodAndKnowsHowItEnded(t *testing.T) {
	t.Parallel()
	c := testbed.Kubernetes(t)
	out, code := run(t, c, c.Image, "echo hello; exit 3")
	require.Equal(t, 3, code, out)
	require.Contains(t, out, "hello")
}

func TestAPodReachesThisMachineAndPullsFromARegistryOnIt(t *testing.T) {
	t.Parallel()
	c := testbed.Kubernetes(t)
	registry := c.NewRegistry(t, "", "")
	out, code := run(t, c, registry.Image, "wget -qO- http://"+registry.Host+"/v2/ && echo reached")
	require.Zero(t, code, out)
	require.Contains(t, out, "reached")
	require.NotZero(t, registry.Pulls())
}

// run runs a command in a pod and returns its output and exit code. It does not attach:
// kubectl loses the output of a command that ends while it attaches.
func run(t *testing.T, c *testbed.Cluster, image, command string) (output string, code int) {
	t.Helper()
	ns := c.NewNamespace(t)
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := c.Kubectl(t, append([]string{"--namespace", ns}, args...)...)
		require.NoError(t, err, out)
		return out
	}
	const terminated = "{.status.containerStatuses[0].state.terminated"
	kubectl("run", "one", "--image", image, "--restart=Never", "--", "sh", "-c", command)
	kubectl("wait", "pod/one", "--for=jsonpath="+terminated+"}", "--timeout=90s")
	code, err := strconv.Atoi(kubectl("get", "pod/one", "-o", "jsonpath="+terminated+".exitCode}"))
	require.NoError(t, err)
	return kubectl("logs", "one"), code
}

const clusterVariable = "DLITE_TEST_CLUSTER"

// The cluster of a killed test process ends too. If the process that cleans up is killed as
// well, the next cluster removes the remaining files and control groups.
func TestAKilledTestLeavesNothingOfItsCluster(t *testing.T) {
	t.Parallel()
	testbed.Kubernetes(t) // skips the test if no cluster can run
	first := startOwner(t)
	require.NotEmpty(t, first.leftovers())
	first.kill(t, true)
	require.NotEmpty(t, first.leftovers())
	second := startOwner(t)
	require.Empty(t, first.leftovers(), "the next cluster clears up")
	second.kill(t, false)
	require.Eventually(t, func() bool { return len(second.leftovers()) == 0 }, time.Minute, 20*time.Millisecond)
}

// owner is another test process with a cluster.
type owner struct {
	cmd    *exec.Cmd
	name   string
	keeper int
}

func startOwner(t *testing.T) *owner {
	t.Helper()
	o := &owner{cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestClusterOwner$")}
	o.cmd.Env = append(os.Environ(), clusterVariable+"=1")
	out, err := o.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, o.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	o.name = filepath.Base(strings.TrimSpace(line))
	require.Contains(t, o.name, "dlite-kubernetes-")
	o.keeper = childOf(t, o.cmd.Process.Pid, o.name)
	return o
}

// kill kills the process. With all it first kills the process that cleans up.
func (o *owner) kill(t *testing.T, all bool) {
	t.Helper()
	if all {
		require.NoError(t, signalProcess(o.keeper))
	}
	require.NoError(t, o.cmd.Process.Kill())
	require.Error(t, o.cmd.Wait())
}

func signalProcess(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// childOf returns the child of a process with text in its command line.
func childOf(t *testing.T, parent int, text string) int {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, dir := range found {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		// The name may contain spaces and parentheses, so the fields are counted from its end.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if fields[1] == strconv.Itoa(parent) && bytes.Contains(line, []byte(text)) {
			pid, err := strconv.Atoi(filepath.Base(dir))
			require.NoError(t, err)
			return pid
		}
	}
	t.Fatalf("no child of %d has %s in its command line", parent, text)
	return 0
}

// leftovers returns the directory and the control groups of a cluster.
func (o *owner) leftovers() []string {
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + o.name) // the pattern is valid
	for _, path := range []string{filepath.Join(os.TempDir(), o.name), "/sys/fs/cgroup/" + o.name} {
		if _, err := os.Stat(path); err == nil {
			groups = append(groups, path)
		}
	}
	return groups
}

func TestClusterOwner(t *testing.T) {
	if os.Getenv(clusterVariable) == "" {
		return // this is the process that is killed, and not a test
	}
	c := testbed.Kubernetes(t)
	_, err := os.Stdout.WriteString(filepath.Dir(c.Kubeconfig) + "\n")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	<-ctx.Done()
}
