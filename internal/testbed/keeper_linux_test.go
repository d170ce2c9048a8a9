package testbed_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

// keptVariable, if set, makes this test binary the process that is killed. It names a
// directory.
const keptVariable = "DLITE_TEST_KEPT"

// A killed test process leaves neither its directories nor a process that uses them.
// Directories that it has released are not touched.
func TestAKilledTestProcessLeavesNothing(t *testing.T) {
	if dir := os.Getenv(keptVariable); dir != "" {
		beKilled(t, dir)
		return
	}
	t.Parallel()
	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), keptVariable+"="+dir)
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	lines := bufio.NewScanner(output)
	pids := map[string]int{}
	for lines.Scan() && lines.Text() != "begun" {
		name, pid, _ := strings.Cut(lines.Text(), " ")
		pids[name], err = strconv.Atoi(pid)
		require.NoError(t, err, lines.Text())
	}
	require.Len(t, pids, 4)
	t.Cleanup(func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	for name, pid := range pids {
		require.True(t, runs(pid), name)
	}
	require.NoError(t, child.Process.Kill())
	_ = child.Wait() // Wait reports the signal as an error

	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "kept"))
		return os.IsNotExist(err)
	}, time.Minute, 10*time.Millisecond, "the folder is left")
	for name, pid := range pids {
		assert.Equal(t, name == "dropped", runs(pid), name)
	}
	assert.DirExists(t, filepath.Join(dir, "dropped"))
}

// runs reports whether a process runs and is not a zombie.
func runs(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// beKilled starts processes that would survive this one, and waits.
func beKilled(t *testing.T, dir string) {
	t.Helper()
	kept, dropped := filepath.Join(dir, "kept"), filepath.Join(dir, "dropped")
	for _, d := range []string{kept, dropped} {
		require.NoError(t, os.Mkdir(d, 0o700))
	}
	t.Run("dropped", func(t *testing.T) { testbed.Keep(t, dropped) })
	testbed.Keep(t, kept)
	for name, set := range map[string]func(*exec.Cmd){
		"in it":          func(c *exec.Cmd) { c.Dir = kept },
		"in arguments":   func(c *exec.Cmd) { c.Args = append(c.Args, "--dir", kept) },
		"in environment": func(c *exec.Cmd) { c.Env = []string{"FOLDER=" + kept} },
		"dropped":        func(c *exec.Cmd) { c.Dir = dropped },
	} {
		cmd := exec.Command("/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done", "survivor") //nolint:noctx // that is the point
		cmd.Env, cmd.SysProcAttr = []string{}, &syscall.SysProcAttr{Setsid: true}
		set(cmd)
		require.NoError(t, cmd.Start())
		_, _ = os.Stdout.WriteString(strings.ReplaceAll(name, " ", "-") + " " + strconv.Itoa(cmd.Process.Pid) + "\n")
	}
	_, _ = os.Stdout.WriteString("begun\n")
	select {}
}
