package vm_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/qemu"
	"github.com/delegate-io/dlite/internal/testbed"
)

// sharedSnapshot is the path of a snapshot for all tests. TestMain removes it.
var sharedSnapshot struct {
	sync.Mutex
	dir string
}

// virtual returns a configuration for emulated machines with a disk, which continue the
// snapshot that all tests share, and a pattern for their directories.
func virtual(tb testing.TB, dir string) (c *qemu.Config, folders string) {
	tb.Helper()
	guest := testbed.VM(tb)
	c = &qemu.Config{
		StateDir: filepath.Join(dir, "qemu"), Binary: guest.QEMU, Accel: "tcg,tb-size=64", CPU: "qemu64", MemoryMB: 128,
		Kernel: guest.Kernel, Initrd: guest.DiskInitrd, Append: guest.Append, Image: guest.Disk, Snapshot: true,
		Forward: []int{testbed.GuestSpyPort},
	}
	require.NoError(tb, os.Mkdir(c.StateDir, 0o700))
	require.NoError(tb, os.Symlink(snapshots(tb, *c), filepath.Join(c.StateDir, "snapshots")))
	return c, filepath.Join(c.StateDir, "machines", "*")
}

// snapshots returns the directory with the snapshot for such machines.
func snapshots(tb testing.TB, c qemu.Config) string {
	tb.Helper()
	sharedSnapshot.Lock()
	defer sharedSnapshot.Unlock()
	if sharedSnapshot.dir == "" {
		dir, err := os.MkdirTemp("", "dlite-vm-")
		require.NoError(tb, err)
		testbed.KeepToTheEnd(tb, dir)
		sharedSnapshot.dir, c.StateDir = dir, dir
		p, err := qemu.New(c)
		require.NoError(tb, err)
		// the first machine creates the snapshot
		const id = "dlite-first"
		_, err = p.Create(tb.Context(), vm.Spec{ID: id, Owner: id, Boot: func() []byte { return []byte("{}") }})
		require.Error(tb, err, "an agent has taken a boot without keys")
		require.NoError(tb, p.Destroy(context.WithoutCancel(tb.Context()), id))
	}
	return filepath.Join(sharedSnapshot.dir, "snapshots")
}

// newVirtualScene returns a scene with virtual machines.
func newVirtualScene(t *testing.T, uses int) *scene {
	t.Helper()
	if testing.Short() {
		t.Skip("takes minutes")
	}
	o := orders{Dir: t.TempDir(), Uses: uses}
	var folders string
	o.QEMU, folders = virtual(t, o.Dir)
	return openScene(t, &o, folders)
}

// requireNoStagesInGuests checks the warm machines with their spies. QEMU may run no other
// machines.
func (s *scene) requireNoStagesInGuests() {
	s.Helper()
	machines := s.records()
	for _, m := range machines {
		s.requireNone(&m, "/processes", "file", "environ", "text", "MARKER="+s.Marker+"\x00")
		for _, dir := range []string{"/tmp", "/dev/shm"} {
			s.requireNone(&m, "/paths", "pattern", dir+"/dlite-*")
		}
	}
	require.Len(s, testbed.ProcessesWith("cmdline", s.QEMU.StateDir+"/"), len(machines), "processes of machines")
}

// requireNone requires that the spy of a machine finds nothing.
func (s *scene) requireNone(m *record, path string, query ...string) {
	s.Helper()
	var data qemu.Data
	require.NoError(s, json.Unmarshal(m.Data, &data))
	values := url.Values{}
	for i := 0; i < len(query); i += 2 {
		values.Set(query[i], query[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+data.Forward[testbed.GuestSpyPort]+path+"?"+values.Encode(), nil)
	require.NoError(s, err)
	resp, err := client.Do(req)
	require.NoError(s, err)
	defer resp.Body.Close() //nolint:errcheck // read to its end
	text, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	var found []string
	require.NoError(s, json.Unmarshal(text, &found), "%s", text)
	require.Empty(s, found, "stages on machine %s", m.ID)
}

// Rules T2 and D6: the kill at every fault point with virtual machines. Each machine serves
// two transactions, so that some are reused and some are destroyed.
func TestAKillAtEveryFaultPointLeavesNoVirtualMachine(t *testing.T) {
	t.Parallel()
	newVirtualScene(t, 2).killAtFaultPoints(1)
}

// crashesVariable is the number of kills at random times, if a few are not enough.
const crashesVariable = "DLITE_VM_CRASHES"

// Rules T2 and D6: the same at random times.
func TestKillsAtRandomInstantsLeaveNoVirtualMachine(t *testing.T) {
	t.Parallel()
	times := 4
	if wanted := os.Getenv(crashesVariable); wanted != "" {
		var err error
		times, err = strconv.Atoi(wanted)
		require.NoError(t, err)
	}
	newVirtualScene(t, 2).killAtInstants(times, 3*time.Second)
}

// Rule D6: ten consecutive transactions, each on a separate virtual machine, leave nothing
// behind.
func TestTenClaimsInARowLeaveNoVirtualMachine(t *testing.T) {
	dir := t.TempDir()
	testbed.Keep(t, dir)
	c, folders := virtual(t, dir)
	p, err := qemu.New(*c)
	require.NoError(t, err)
	cfg := vm.PoolConfig{Name: "linux", Dir: filepath.Join(dir, "pool"), Min: 1, Max: 3, HealthTimeout: 30 * time.Second}
	pool, err := vm.NewPool(p, cfg)
	require.NoError(t, err)
	require.NoError(t, pool.Start(t.Context()))
	count := func() used { return usage(t, cfg.Dir, folders) }
	t.Cleanup(func() {
		require.NoError(t, pool.Close(context.WithoutCancel(t.Context())))
		left := count()
		require.Zero(t, left.records+left.machines+left.processes, "%+v", left)
	})
	claimsInARow(t, pool, 10, count)
}
