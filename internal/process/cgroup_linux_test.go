package process

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

// Content of /proc/self/mountinfo and /proc/self/cgroup on real machines.
func TestControlGroupsOfThisProcessAreFound(t *testing.T) {
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

// Rules D4 and T7: all variants of kernels, on this kernel.
func TestEachKindOfControlGroupHoldsAndKills(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		v1   bool
		kill func(*Cgroup) error
	}{
		"version 2": {kill: func(c *Cgroup) error { return c.Kill(nil) }},
		"version 2 without cgroup.kill": {kill: func(c *Cgroup) error {
			for range 1000 {
				if c.killEach(); !c.populated() {
					return nil
				}
			}
			return fmt.Errorf("left: %v", c.pids())
		}},
		"version 1": {v1: true, kill: func(c *Cgroup) error { return c.Kill(nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cg := newTestCgroup(t, c.v1)
			script := `(setsid env -i sh -c '(trap "" TERM HUP; echo up >&3; exec 3>&-; while :; do sleep 600; done) &' &) ; while :; do sleep 600; done`
			g, up := startScript(t, script, Options{Cgroup: cg})
			require.NotNil(t, g.cgroup)
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
			require.Equal(t, 137, Code(g.End()))
			require.False(t, cg.populated())
			require.Empty(t, cg.pids())
			require.NoError(t, cg.Remove())
			require.NoDirExists(t, cg.path)
			require.NoError(t, cg.Kill(nil), "one that is gone is empty")
			require.NoError(t, cg.Remove())
		})
	}
}

// A program that cannot be started leaves no control group. A machine without control groups starts it
// outside.
func TestAGroupStartsOutsideWhereNoControlGroupCanBeMade(t *testing.T) {
	t.Parallel()
	cg := newTestCgroup(t, false)
	_, err := Start(t.Context(), &exec.Cmd{Path: "/no/such/program"}, Options{Cgroup: cg})
	require.ErrorIs(t, err, syscall.ENOENT)
	require.NoDirExists(t, cg.path)
	require.NotNil(t, cg.all.Named(filepath.Base(cg.path)), "the program was the cause")

	all := &Cgroups{parent: cgroupParent{path: t.TempDir()}}
	all.once.Do(func() {})
	cg = all.Named("dlite-000000000000-0000000000000000-1")
	refused := errors.New("it cannot be recorded")
	started := filepath.Join(t.TempDir(), "started")
	_, err = Start(t.Context(), &exec.Cmd{Path: "/bin/touch", Args: []string{"touch", started}}, Options{
		Cgroup: cg, Outside: func() error { return refused },
	})
	require.ErrorIs(t, err, refused)
	require.NoFileExists(t, started, "nothing starts outside without a record")
	asked := false
	g, up := startScript(t, `echo up >&3`, Options{Cgroup: cg, Background: true, Outside: func() error { asked = true; return nil }})
	require.Nil(t, g.cgroup)
	require.True(t, asked)
	line, err := up.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "up\n", line)
	<-g.Exited()
	require.Zero(t, Code(g.State()))
	require.NoDirExists(t, cg.path)
	require.Nil(t, all.Named("dlite-000000000000-0000000000000000-2"), "it is not tried again")
}

// newTestCgroup returns a control group that does not exist yet.
func newTestCgroup(t *testing.T, v1 bool) *Cgroup {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	member, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	for _, p := range cgroupParents(string(mounts), string(member)) {
		if p.v1 != v1 || syscall.Access(p.path, 2) != nil {
			continue
		}
		all := &Cgroups{parent: p}
		all.once.Do(func() {})
		cg := all.Named(recorded.NewName(t.Name()) + "-" + recorded.RandomHex(16))
		t.Cleanup(func() {
			_ = cg.Kill(nil)
			require.NoError(t, cg.Remove())
		})
		return cg
	}
	testbed.Unavailable(t, "control groups", "none may be made here")
	return nil
}

// startScript starts a shell, and returns the output on its descriptor 3.
func startScript(t *testing.T, script string, opts Options) (*Group, *bufio.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	opts.Marker = recorded.RandomHex(16)
	cmd := &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", script}, ExtraFiles: []*os.File{w}}
	g, err := Start(t.Context(), cmd, opts)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return g, bufio.NewReader(r)
}
