package testbed_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

func TestProcessesAreFoundByArgumentsAndEnvironment(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = w.Close() }()
	// The test makes the text, so that no other process has it.
	argument, value := "argument-"+strconv.Itoa(os.Getpid()), "value-"+strconv.Itoa(os.Getpid())
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "echo up; read -r line", "sh", argument)
	cmd.Env = []string{"MARKER=" + value}
	cmd.Stdin = r
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.NoError(t, r.Close())
	_, err = out.Read(make([]byte, 3)) // now the process is the shell and not its parent's copy
	require.NoError(t, err)

	dir := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid))
	assert.Equal(t, []string{filepath.Join(dir, "cmdline")}, testbed.ProcessesWith("cmdline", argument))
	assert.Equal(t, []string{filepath.Join(dir, "environ")}, testbed.ProcessesWith("environ", "MARKER="+value+"\x00"))
	assert.Equal(t, []string{filepath.Base(dir) + ": /bin/sh -c echo up; read -r line sh " + argument}, testbed.CommandLines(argument))

	require.NoError(t, w.Close())
	_ = cmd.Wait() // read fails at the end of the input
	assert.Empty(t, testbed.ProcessesWith("cmdline", argument))
}

func TestFilesAreFoundByTheirText(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	with, without := filepath.Join(dir, "sub", "with"), filepath.Join(dir, "without")
	require.NoError(t, os.Mkdir(filepath.Dir(with), 0o700))
	require.NoError(t, os.WriteFile(with, []byte("a text in it"), 0o600))
	require.NoError(t, os.WriteFile(without, []byte("a tex"), 0o600))
	require.NoError(t, os.Symlink(with, filepath.Join(dir, "link")))
	assert.Equal(t, []string{with}, testbed.FilesWith(t, dir, "text"))
	assert.Empty(t, testbed.FilesWith(t, filepath.Join(dir, "none"), "text"))
}
