package qemu_test

import (
	"bytes"
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/qemu"
	"github.com/delegate-io/dlite/internal/testbed"
)

func open(tb testing.TB, c qemu.Config) vm.Provider {
	tb.Helper()
	p, err := qemu.New(c)
	require.NoError(tb, err)
	return p
}

func alive(tb testing.TB, p vm.Provider, id string) bool {
	tb.Helper()
	is, err := p.Alive(tb.Context(), id)
	require.NoError(tb, err)
	return is
}

func list(tb testing.TB, p vm.Provider, owner string) []string {
	tb.Helper()
	ids, err := p.List(tb.Context(), owner)
	require.NoError(tb, err)
	return ids
}

// nothingLeft requires that no directory and no process remains.
func nothingLeft(tb testing.TB, c qemu.Config, ids ...string) {
	tb.Helper()
	assert.Empty(tb, entries(tb, filepath.Join(c.StateDir, "machines")))
	for _, id := range ids {
		assert.Empty(tb, testbed.CommandLines(id))
	}
}

// Rules D6 and S5: on each machine type and disk, a guest gets its boot and the time. No secret of
// the boot is on the host's disk or command lines, and nothing remains of the guest.
func TestAMachineStartsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]qemu.Config{
		"in memory on a microvm": config(t), "on a disk of a q35": config(t, onDisk(t)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, c)
			g := create(t, p)
			g.healthy(t)
			assert.Less(t, g.clockError(t), time.Second)
			assert.True(t, alive(t, p, g.id))
			assert.Equal(t, []string{g.id}, list(t, p, owner))
			assert.Empty(t, list(t, p, "dlite-other-owner"))
			assert.NotEmpty(t, testbed.CommandLines(g.id))
			for _, secret := range g.secrets() {
				assert.Empty(t, testbed.CommandLines(secret))
				assert.Empty(t, filesWith(t, c.StateDir, secret))
			}

			destroy(t, p, g.id)
			assert.False(t, alive(t, p, g.id))
			assert.NoDirExists(t, filepath.Join("/proc", strconv.Itoa(g.data.PID)))
			_, err := new(net.Dialer).DialContext(t.Context(), "tcp", g.Address)
			require.Error(t, err, "its port is free")
			nothingLeft(t, c, g.id)
		})
	}
}

func filesWith(tb testing.TB, dir, text string) []string {
	tb.Helper()
	var found []string
	require.NoError(tb, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return err
	}))
	return found
}

// Rules D6 and T2: one process of the delegate finds and destroys a machine that another one
// created. A killed machine is dead at once.
func TestAnotherProcessFindsAndDestroysAMachine(t *testing.T) {
	t.Parallel()
	c := config(t)
	g := create(t, open(t, c))
	p := open(t, c)
	assert.True(t, alive(t, p, g.id))
	require.NoError(t, syscall.Kill(g.data.PID, syscall.SIGKILL))
	require.Eventually(t, func() bool { return !alive(t, p, g.id) }, time.Second, time.Millisecond)
	assert.Equal(t, []string{g.id}, list(t, p, owner), "its folder is still there")
	destroy(t, p, g.id)
	destroy(t, p, g.id)
	nothingLeft(t, c, g.id)

	g = create(t, open(t, c))
	destroy(t, p, g.id)
	nothingLeft(t, c, g.id)
}

// Rule T2: a machine is found and destroyed at every stage of its creation.
func TestAnIncompleteMachineIsDestroyed(t *testing.T) {
	t.Parallel()
	c := config(t)
	p := open(t, c)
	id := newID()
	dir := filepath.Join(c.StateDir, "machines", owner+"."+id)
	for _, file := range []string{"", "alive", "disk.qcow2"} {
		require.NoError(t, os.Mkdir(dir, 0o700))
		if file != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
		}
		assert.False(t, alive(t, p, id))
		assert.Equal(t, []string{id}, list(t, p, owner))
		destroy(t, p, id)
		nothingLeft(t, c, id)
	}
	destroy(t, p, newID())
}

// Rule D6: a Create that its caller or a Destroy stops leaves nothing.
func TestACanceledCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, giveUp := range map[string]func(t *testing.T, p vm.Provider, id string, cancel func()){
		"by its caller": func(_ *testing.T, _ vm.Provider, _ string, cancel func()) { cancel() },
		"by a destroy":  func(t *testing.T, p vm.Provider, id string, _ func()) { destroy(t, p, id) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(t)
			p := open(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			id := newID()
			failed, boot := make(chan error, 1), newBoot(t)
			go func() {
				_, err := p.Create(ctx, spec(id, boot))
				failed <- err
			}()
			require.Eventually(t, func() bool { return len(testbed.CommandLines(id)) > 0 }, patience, time.Millisecond)
			giveUp(t, p, id, cancel)
			require.Error(t, <-failed)
			nothingLeft(t, c, id)
		})
	}
}

// Rule D6: the error of a guest that did not boot names the reason, and nothing remains of the
// guest.
func TestTheErrorOfAFailedGuestHasTheReason(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*qemu.Config)
		says   []string
	}{
		"it ends": {
			func(c *qemu.Config) { c.Append += " rdinit=/no/such/program" },
			[]string{"the emulator has ended"},
		},
		"its agent is not ready": {
			func(c *qemu.Config) {
				c.Append += " rdinit=/bin/echo"
				c.BootTimeout, c.ExtraArgs = 20*time.Second, []string{"-no-shutdown", "-action", "reboot=shutdown"}
			},
			[]string{"the agent was not ready within 20s", "Attempted to kill init"},
		},
		"the emulator refuses": {
			func(c *qemu.Config) { c.ExtraArgs = []string{"-no-such-option"} },
			[]string{"the emulator has ended", "no-such-option"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(t, test.change)
			id := newID()
			_, err := open(t, c).Create(t.Context(), spec(id, newBoot(t)))
			for _, says := range test.says {
				require.ErrorContains(t, err, says)
			}
			nothingLeft(t, c, id)
		})
	}
}

// Rule D6: QEMU can switch its user after it has opened its files, with all features of a machine.
func TestAMachineRunsAsAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		testbed.Unavailable(t, "root", "only root may change the user")
	}
	c := config(t, onDisk(t), withSnapshot, func(c *qemu.Config) { c.User = "nobody" })
	p := open(t, c)
	g := create(t, p)
	g.healthy(t)
	info, err := os.Stat(filepath.Join("/proc", strconv.Itoa(g.data.PID)))
	require.NoError(t, err)
	const nobody = 65534
	assert.Equal(t, uint32(nobody), info.Sys().(*syscall.Stat_t).Uid)
	assert.True(t, alive(t, p, g.id))
	destroy(t, p, g.id)
	nothingLeft(t, c, g.id)
}

// Rule T8: a restricted guest reaches nothing of this host; other guests do.
func TestARestrictedGuestReachesNothing(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	for restrict, reaches := range map[bool]string{true: "false", false: "true"} {
		t.Run("restricted "+strconv.FormatBool(restrict), func(t *testing.T) {
			t.Parallel()
			g := create(t, open(t, config(t, func(c *qemu.Config) { c.Restrict = restrict })))
			assert.Equal(t, reaches, string(g.spy(t, "/dial", "address", "10.0.2.2:"+port)))
		})
	}
}

// Rule D6: guests restored from one snapshot have the right time, and share no randomness, ids or
// disks. Several providers make the snapshot once, and an incomplete snapshot is replaced.
func TestGuestsFromASnapshotShareNoState(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]qemu.Config{
		"in memory on a microvm": config(t, withSnapshot), "on a disk of a q35": config(t, onDisk(t), withSnapshot),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guests := make([]*guest, 3)
			var all sync.WaitGroup
			for i := range guests {
				all.Go(func() { guests[i] = create(t, open(t, c)) })
			}
			all.Wait()
			require.False(t, t.Failed())
			random, ids := map[string]bool{}, map[string]bool{}
			for _, g := range guests {
				g.healthy(t)
				assert.Less(t, g.clockError(t), time.Second)
				random[string(g.spy(t, "/read", "path", "/dev/urandom", "bytes", "32"))] = true
				ids[string(g.spy(t, "/read", "path", "/proc/sys/kernel/random/boot_id", "bytes", "36"))] = true
			}
			assert.Len(t, random, len(guests))
			assert.Len(t, ids, len(guests))
			snapshots, err := filepath.Glob(filepath.Join(c.StateDir, "snapshots", "*", "state"))
			require.NoError(t, err)
			require.Len(t, snapshots, 1)
			for _, secret := range guests[0].secrets() {
				assert.Empty(t, filesWith(t, c.StateDir, secret))
			}
			for _, g := range guests {
				destroy(t, open(t, c), g.id)
			}
			nothingLeft(t, c, guests[0].id, "dlite-snapshot-"+filepath.Base(filepath.Dir(snapshots[0])))
		})
	}
}

func TestAnInvalidConfigurationIsRefusedWithAdvice(t *testing.T) {
	t.Parallel()
	kernel := filepath.Join(t.TempDir(), "vmlinux")
	require.NoError(t, os.WriteFile(kernel, []byte("kernel"), 0o600))
	for says, c := range map[string]qemu.Config{
		"StateDir is missing":  {Kernel: kernel},
		"set Image or Kernel":  {StateDir: t.TempDir()},
		"set Kernel":           {StateDir: t.TempDir(), Image: kernel, Append: "quiet"},
		"must not be negative": {StateDir: t.TempDir(), Kernel: kernel, CPUs: -1},
		"install QEMU":         {StateDir: t.TempDir(), Kernel: kernel, Binary: "no-such-emulator"},
		"no such file":         {StateDir: t.TempDir(), Kernel: kernel + ".none", Binary: "/bin/sh"},
	} {
		_, err := qemu.New(c)
		require.ErrorContains(t, err, says)
	}
	p := open(t, qemu.Config{StateDir: t.TempDir(), Kernel: kernel, Binary: "/bin/sh"})
	for _, id := range []string{"", "../x", "a.b", "*"} {
		_, err := p.Create(t.Context(), vm.Spec{ID: id, Owner: owner})
		require.Error(t, err)
		require.Error(t, p.Destroy(t.Context(), id))
		_, err = p.Alive(t.Context(), id)
		require.Error(t, err)
		_, err = p.List(t.Context(), id)
		require.Error(t, err)
	}
}

// Rule D6: an unreadable state directory does not count as the absence of a machine.
func TestAnUnreadableStateDirectoryIsAnError(t *testing.T) {
	t.Parallel()
	c := config(t)
	p := open(t, c)
	id := newID()
	machines := filepath.Join(c.StateDir, "machines")
	require.NoError(t, os.Remove(machines))
	require.NoError(t, p.Destroy(t.Context(), id), "without a directory there is no machine")
	require.NoError(t, os.WriteFile(machines, nil, 0o600))
	require.ErrorContains(t, p.Destroy(t.Context(), id), machines)
	_, err := p.Alive(t.Context(), id)
	require.ErrorContains(t, err, machines)
	_, err = p.List(t.Context(), owner)
	require.ErrorContains(t, err, machines)
}
