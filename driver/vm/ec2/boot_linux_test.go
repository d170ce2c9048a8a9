package ec2_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/ec2"
	"github.com/delegate-io/dlite/driver/vm/internal/vmtest"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

// first gives a machine separate processes, mounts and memory, applies user data like
// cloud-init, and runs while its input is open.
const first = `set -e
mount -t proc proc /proc
for dir in /run /dev/shm /sys/fs/cgroup; do mount -t tmpfs -o mode=1777 tmpfs $dir; done
if [ -d /var/lib/cloud ]; then mount -t tmpfs tmpfs /var/lib/cloud; fi
mkdir /run/dlite
umask 077
cat >/run/dlite/boot.json <&3
exec 3<&-
umask 022
"$@"
exec cat >/dev/null`

// booting returns a cloud whose instances are processes. They apply their user data, and each
// has the address that the cloud assigned.
func booting(tb testing.TB) *cloud {
	tb.Helper()
	if os.Geteuid() != 0 {
		testbed.Unavailable(tb, "root", "machines that are processes need root for their namespaces")
	}
	c := newCloud(tb)
	c.hidden, c.pending, c.stale = 1, 2, 1
	c.launch = func(i *instance) {
		b, script := readCloudConfig(tb, i.userData)
		b.Listen = i.address + ":9079" // all instances share this host's network
		boot, err := json.Marshal(b)
		require.NoError(tb, err)
		r, w, err := os.Pipe()
		require.NoError(tb, err)
		_, err = w.Write(boot) // less than the capacity of a pipe
		require.NoError(tb, err)
		require.NoError(tb, w.Close())
		var output bytes.Buffer
		disk := tb.TempDir()
		cmd := exec.Command("/bin/sh", "-c", first, "machine", "/bin/sh", "-c", script) //nolint:noctx // it ends with its input
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + disk}
		cmd.Dir, cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = disk, []*os.File{r}, &output, &output
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
		power, err := cmd.StdinPipe()
		require.NoError(tb, err)
		require.NoError(tb, cmd.Start())
		require.NoError(tb, r.Close())
		i.end = func() {
			assert.NoError(tb, power.Close())
			assert.NoError(tb, cmd.Wait(), "output: %s", &output)
		}
	}
	return c
}

// installing lets machines download their agent.
func installing(tb testing.TB) func(*ec2.Config) {
	tb.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		if _, err := exec.LookPath("wget"); err != nil {
			testbed.Unavailable(tb, "curl", "this machine has neither curl nor wget")
		}
	}
	file := testbed.BuildStatic(tb, "./examples/agent")
	b, err := os.ReadFile(file)
	require.NoError(tb, err)
	sum := sha256.Sum256(b)
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }))
	tb.Cleanup(store.Close)
	return func(cfg *ec2.Config) {
		cfg.Agent = ec2.Agent{Path: "/run/installed/agent", URL: store.URL + "/agent", SHA256: hex.EncodeToString(sum[:])}
	}
}

// Rule D6: the suite for providers, with real agents that user data starts.
func TestProvider(t *testing.T) {
	c, installed := booting(t), installing(t)
	vmtest.TestProvider(t, func(testing.TB) vm.Provider { return c.provider(installed) })
	assert.Empty(t, c.left())
}

// records is a ledger in memory for one transaction without concurrency.
type records map[string]driver.Resource

// Record implements [driver.Ledger].
func (r records) Record(_ context.Context, one driver.Resource) error {
	r[one.Kind+" "+one.ID] = one
	return nil
}

// Rule D6: a stage runs on a pool of EC2 machines. If EC2 reclaims a machine, its step fails
// at once and nothing remains.
func TestAPoolOfMachinesRunsAStage(t *testing.T) {
	t.Parallel()
	c := booting(t)
	pool, err := vm.NewPool(c.provider(installing(t)), vm.PoolConfig{Name: "ec2", Dir: filepath.Join(t.TempDir(), "pool"), Min: 1, Max: 3})
	require.NoError(t, err)
	require.NoError(t, pool.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		assert.NoError(t, pool.Close(ctx))
		assert.Empty(t, c.left())
	})
	d, err := vm.New([]*vm.Pool{pool})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	env, l := &driver.Environment{ID: "stage-1"}, records{}
	require.NoError(t, d.Init(t.Context(), env, l))
	step := func(script string) *driver.Step {
		return &driver.Step{Step: stage.Step{ID: "s", Kind: "Run", Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{script}}}}
	}
	var out bytes.Buffer
	result, err := d.Execute(t.Context(), env, step("ls -l /run/dlite"), &out, l)
	require.NoError(t, err)
	assert.Zero(t, result.ExitCode)
	assert.Contains(t, out.String(), "-rw------- ")

	// EC2 reclaims the machine during a step.
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := d.Execute(t.Context(), env, step("echo up; sleep 600"), w, l)
		_ = w.Close()
		ended <- err
	}()
	_, err = io.ReadFull(r, make([]byte, 2))
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, r) }()
	var taken time.Time
	c.with(func() {
		for _, i := range c.instances {
			if i.state == "running" {
				i.state, i.stale, i.ending = "shutting-down", 0, 0
				for _, v := range i.volumes {
					v.gone = v.goes
				}
				i.stop()
			}
		}
		taken = time.Now()
	})
	require.Error(t, <-ended)
	assert.Less(t, time.Since(taken), 30*time.Second)
	left, err := d.Cleanup(t.Context(), slices.Collect(maps.Values(l)))
	require.NoError(t, err)
	assert.Empty(t, left)
}
