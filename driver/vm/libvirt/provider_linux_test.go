package libvirt_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/internal/vmtest"
	ours "github.com/delegate-io/dlite/driver/vm/libvirt"
	"github.com/delegate-io/dlite/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	owner    = "dlite-test-owner"
	pool     = "machines"
	patience = 3 * time.Minute
)

// config returns an emulated guest on a disk, at a private daemon with a storage pool.
func config(t *testing.T, daemon *testbed.LibvirtDaemon) ours.Config {
	t.Helper()
	guest := testbed.VM(t)
	makePool(t, daemon, daemon.Folder(t, pool))
	return ours.Config{
		Socket: daemon.Socket, URI: daemon.URI, Type: "qemu", CPU: "qemu64", MemoryMB: 160,
		Kernel: daemon.Copy(t, guest.Kernel), Initrd: daemon.Copy(t, guest.DiskInitrd), Append: guest.Append,
		Image: daemon.Copy(t, guest.Disk), ImageFormat: "raw", Pool: pool,
	}
}

func makePool(t *testing.T, daemon *testbed.LibvirtDaemon, dir string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", daemon.Socket)
	require.NoError(t, err)
	l := libvirt.NewWithDialer(dialers.NewAlreadyConnected(conn))
	require.NoError(t, l.ConnectToURI(libvirt.ConnectURI(daemon.URI)))
	defer l.Disconnect() //nolint:errcheck // of a test
	_, err = l.StoragePoolCreateXML("<pool type='dir'><name>"+pool+"</name><target><path>"+dir+"</path></target></pool>", 0)
	require.NoError(t, err)
}

func open(tb testing.TB, c ours.Config) vm.Provider {
	tb.Helper()
	p, err := ours.New(c)
	require.NoError(tb, err)
	return p
}

func newID() string { return "dlite-" + strings.ToLower(rand.Text()) }

func spec(t *testing.T, id string) vm.Spec {
	t.Helper()
	ca, cert, key, err := agent.Issue("", time.Now())
	require.NoError(t, err)
	return vm.Spec{ID: id, Owner: owner, Labels: map[string]string{"team": "<a&b>"}, Boot: func() []byte {
		b, _ := json.Marshal(agent.Boot{CA: ca, Cert: cert, Key: key, Time: time.Now().UnixNano()})
		return b
	}}
}

// Rule D6: the suite for providers with a real libvirt.
func TestTheProviderPassesTheSuite(t *testing.T) {
	t.Parallel()
	daemon := testbed.Libvirt(t)
	c := config(t, daemon)
	vmtest.TestProvider(t, func(tb testing.TB) vm.Provider { return open(tb, c) })
	assert.Empty(t, files(t, filepath.Join(daemon.Dir, pool)), "disks are left")
	assert.Empty(t, daemon.Machines())
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// Rules D6 and S5: a machine whose process was killed is dead and can be destroyed. No secret
// of its boot was on the daemon's disk.
func TestAKilledMachineIsDead(t *testing.T) {
	t.Parallel()
	daemon := testbed.Libvirt(t)
	c := config(t, daemon)
	p := open(t, c)
	id, ctx := newID(), t.Context()
	s := spec(t, id)
	_, err := p.Create(ctx, s)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Destroy(context.WithoutCancel(ctx), id) })
	assert.Equal(t, []string{id + ".qcow2"}, files(t, filepath.Join(daemon.Dir, pool)))
	var boot agent.Boot
	require.NoError(t, json.Unmarshal(s.Boot(), &boot))
	secret := strings.Split(string(boot.Key), "\n")[1]
	require.NoError(t, filepath.WalkDir(daemon.Dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		assert.NotContains(t, string(b), secret, path)
		return err
	}))

	machines := daemon.Machines()
	require.Len(t, machines, 1)
	require.NoError(t, syscall.Kill(machines[0], syscall.SIGKILL))
	// The daemon decides how soon it notices that, and a busy machine slows it down.
	require.Eventually(t, func() bool {
		alive, err := p.Alive(ctx, id)
		return err == nil && !alive
	}, patience, 10*time.Millisecond)
	ids, err := p.List(ctx, owner)
	require.NoError(t, err)
	assert.Equal(t, []string{id}, ids)
	require.NoError(t, p.Destroy(ctx, id))
	assert.Empty(t, files(t, filepath.Join(daemon.Dir, pool)))
}

// Rule D6: a failure is reported and leaves nothing. An unreachable daemon is an error, and
// does not mean that the machine is gone.
func TestFailuresAreReportedAndLeaveNothing(t *testing.T) {
	t.Parallel()
	daemon := testbed.Libvirt(t)
	c := config(t, daemon)
	for says, change := range map[string]func(*ours.Config){
		"storage pool none":         func(c *ours.Config) { c.Pool = "none" },
		"create the machine's disk": func(c *ours.Config) { c.Image = "/no/such/image" },
		"start the domain":          func(c *ours.Config) { c.Kernel = "/no/such/kernel" },
		"define the domain":         func(c *ours.Config) { c.Template = "<domain/>" },
		"the agent was not ready":   func(c *ours.Config) { c.BootTimeout = time.Second },
	} {
		broken := c
		change(&broken)
		_, err := open(t, broken).Create(t.Context(), spec(t, newID()))
		require.ErrorContains(t, err, says)
		ids, err := open(t, c).List(t.Context(), owner)
		require.NoError(t, err)
		assert.Empty(t, ids, says)
		assert.Empty(t, files(t, filepath.Join(daemon.Dir, pool)), says)
		assert.Empty(t, daemon.Machines(), says)
	}
	away := c
	away.Socket = filepath.Join(daemon.Dir, "none")
	p := open(t, away)
	_, err := p.Alive(t.Context(), newID())
	require.ErrorContains(t, err, "does the daemon run?")
	_, err = p.List(t.Context(), owner)
	require.Error(t, err)
	require.Error(t, p.Destroy(t.Context(), newID()))
}

func TestAnInvalidConfigurationIsRefusedWithAdvice(t *testing.T) {
	t.Parallel()
	for says, c := range map[string]ours.Config{
		"set Image or Kernel":  {},
		"set Kernel":           {Image: "/image", Append: "quiet"},
		"must not be negative": {Image: "/image", MemoryMB: -1},
		"not an absolute path": {Image: "image"},
		"unknown placeholder ${nothing}: the placeholders are arch, boot,": {Image: "/image", Template: "<domain>${nothing}</domain>"},
	} {
		_, err := ours.New(c)
		require.ErrorContains(t, err, says)
	}
}
