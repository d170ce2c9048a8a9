package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/recorded"
	"github.com/delegate-io/dlite/internal/testbed"
)

// What real machines have in /proc/self/mountinfo and /proc/self/cgroup.
func TestOurControlGroupIsFound(t *testing.T) {
	t.Parallel()
	const unified = "41 31 0:38 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	const freezer = "37 31 0:34 / /sys/fs/cgroup/freezer rw shared:9 - cgroup cgroup rw,freezer\n"
	for name, c := range map[string]struct {
		mounts, member string
		want           []cgroupParent
	}{
		"version 2":      {unified, "0::/system.slice/delegate.service\n", []cgroupParent{{path: "/sys/fs/cgroup/system.slice/delegate.service"}}},
		"both":           {freezer + unified, "6:freezer:/\n0::/\n", []cgroupParent{{path: "/sys/fs/cgroup"}, {path: "/sys/fs/cgroup/freezer", v1: true}}},
		"shared mount":   {strings.ReplaceAll(freezer, "rw,freezer", "rw,cpuset,freezer"), "6:cpuset,freezer:/a b\n", []cgroupParent{{path: "/sys/fs/cgroup/freezer/a b", v1: true}}},
		"part of it":     {strings.Replace(unified, " / ", " /docker/0123 ", 1), "0::/docker/0123/inner\n", []cgroupParent{{path: "/sys/fs/cgroup/inner"}}},
		"outside":        {strings.Replace(unified, " / ", " /docker/0123 ", 1), "0::/docker/other\n", nil},
		"other space":    {unified, "0::/../other\n", nil},
		"name with :":    {unified, "0::/a:b\n", []cgroupParent{{path: "/sys/fs/cgroup/a:b"}}},
		"escaped":        {strings.Replace(unified, "/sys/fs/cgroup", `/mnt/a\040b`, 1), "0::/\n", []cgroupParent{{path: "/mnt/a b"}}},
		"not mounted":    {"22 1 0:21 / /proc rw - proc proc rw\n", "0::/\n", nil},
		"others only":    {strings.ReplaceAll(freezer, "freezer", "memory"), "4:memory:/\n", nil},
		"broken":         {"x - y\n- - -\n\n", "::\n0\n", nil},
		"without member": {unified, "", nil},
	} {
		require.Equal(t, c.want, cgroupParents(c.mounts, c.member), name)
	}
}

// The ways that kernels differ in, all on this one: SPEC D4, T7.
func TestEveryKindOfControlGroupHoldsAndKills(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		v1   bool
		kill func(*cgroup) error
	}{
		"version 2": {kill: func(c *cgroup) error { return c.kill(nil) }},
		"version 2 without cgroup.kill": {kill: func(c *cgroup) error {
			for range 1000 {
				if c.killEach(); !c.populated() {
					return nil
				}
			}
			return fmt.Errorf("left: %v", c.pids())
		}},
		"version 1": {v1: true, kill: func(c *cgroup) error { return c.kill(nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cg := newTestCgroup(t, c.v1)
			script := `(setsid env -i sh -c '(trap "" TERM HUP; echo up >&3; exec 3>&-; while :; do sleep 600; done) &' &) ; while :; do sleep 600; done`
			g, up := startScript(t, cg, script)
			require.NotNil(t, g.cg)
			line, err := up.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "up\n", line)
			require.GreaterOrEqual(t, len(cg.pids()), 3)
			require.True(t, cg.populated())
			tasks, err := filepath.Glob("/proc/self/task/[0-9]*/cgroup")
			require.NoError(t, err)
			for _, task := range tasks {
				b, _ := os.ReadFile(task)
				require.NotContains(t, string(b), filepath.Base(cg.path), "a thread of ours stayed in it")
			}

			require.NoError(t, c.kill(cg))
			require.Error(t, g.cmd.Wait())
			require.False(t, cg.populated())
			require.Empty(t, cg.pids())
			require.NoError(t, cg.remove())
			require.NoDirExists(t, cg.path)
			require.NoError(t, cg.kill(nil), "one that is gone is empty")
			require.NoError(t, cg.remove())
		})
	}
}

// A program that cannot be started leaves no control group, and one that can is
// started without where there are none.
func TestStepsRunWithoutControlGroupsToo(t *testing.T) {
	t.Parallel()
	cg := newTestCgroup(t, false)
	cmd := &exec.Cmd{Path: "/no/such/program"}
	require.NoError(t, prepareCommand(cmd, nil))
	_, err := startGroup(cmd, "", cg)
	require.ErrorIs(t, err, syscall.ENOENT)
	require.NoDirExists(t, cg.path)
	require.NotNil(t, cg.all.named(filepath.Base(cg.path)), "it was the program's fault")

	all := &cgroups{parent: cgroupParent{path: t.TempDir()}}
	all.once.Do(func() {})
	cg = all.named("dlite-000000000000-0000000000000000-1")
	outside := errors.New("it cannot be recorded")
	cg.outside = func() error { return outside }
	cmd = &exec.Cmd{Path: "/bin/true"}
	require.NoError(t, prepareCommand(cmd, nil))
	_, err = startGroup(cmd, "", cg)
	require.ErrorIs(t, err, outside)
	require.Nil(t, cmd.Process, "nothing runs outside without a record")
	asked := false
	cg.outside = func() error { asked = true; return nil }
	g, up := startScript(t, cg, `echo up >&3`)
	require.Nil(t, g.cg)
	require.True(t, asked)
	line, err := up.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "up\n", line)
	require.NoError(t, g.cmd.Wait())
	require.NoDirExists(t, cg.path)
	require.Nil(t, all.named("dlite-000000000000-0000000000000000-2"), "it is not tried again")
}

// newTestCgroup is a control group that is not made yet.
func newTestCgroup(t *testing.T, v1 bool) *cgroup {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	member, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	for _, p := range cgroupParents(string(mounts), string(member)) {
		if p.v1 != v1 || syscall.Access(p.path, 2) != nil {
			continue
		}
		all := &cgroups{parent: p}
		all.once.Do(func() {})
		cg := all.named(recorded.NewName(t.Name()) + "-" + recorded.RandomHex(16))
		t.Cleanup(func() {
			_ = cg.kill(nil)
			require.NoError(t, cg.remove())
		})
		return cg
	}
	testbed.Unavailable(t, "control groups", "none may be made here")
	return nil
}

// startScript starts a shell whose descriptor 3 is what it gives.
func startScript(t *testing.T, cg *cgroup, script string) (*group, *bufio.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	cmd := &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", script}, ExtraFiles: []*os.File{w}}
	require.NoError(t, prepareCommand(cmd, nil))
	g, err := startGroup(cmd, recorded.RandomHex(16), cg)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return g, bufio.NewReader(r)
}
