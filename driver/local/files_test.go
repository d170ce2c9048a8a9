//go:build unix

package local_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A write to a pipe without a reader would block the driver.
func TestInitWritesOnlyToRegularFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	r.run(sh("before", "mkfifo pipe; mkdir folder; ln -s /dev/null device"))
	for name, want := range map[string]string{"pipe": "pipe", "folder": "folder", "device": "device"} {
		step := sh("step", "true")
		step.OutputVarFile = name
		_, err := r.fail(step)
		require.ErrorContains(t, err, want)
	}
	// A pipe with a reader is not a regular file either.
	reader, err := os.OpenFile(filepath.Join(r.workspace(), "pipe"), os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = reader.Close() }()
	step := sh("step", "true")
	step.OutputVarFile = "pipe"
	_, err = r.fail(step)
	require.ErrorContains(t, err, "not a regular file")
}

// The user of the step can write to its directories, whatever the delegate's umask is.
func TestFoldersOfAStepAreOpenToItsUser(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	r.run(sh("before", "mkdir -m 700 mine"))
	step := sh("step", `stat -c %a . ../scratch; cd ../..; stat -c %a mine`)
	step.WorkingDir, step.ScratchDir = "a/work", "a/scratch"
	_, out := r.run(step)
	require.Equal(t, "777\n777\n700\n", out)
}

// The driver does not read a directory that the step put in place of its own.
func TestAFolderThatTheStepReplacedIsNotRead(t *testing.T) {
	t.Parallel()
	foreign := t.TempDir()
	for _, name := range []string{"output", "secret", "env", "artifact", "vars"} {
		require.NoError(t, os.WriteFile(filepath.Join(foreign, name), []byte("K=hunter2\n"), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "r.xml"), []byte(goodReport), 0o600))
	r := newRig(t).init()
	step := reporting(`d=$(dirname $DRONE_OUTPUT); rm -r $d; ln -s `+foreign+` $d
		cd ..; mv workspace old; ln -s `+foreign+` workspace`, "r.xml")
	res, _ := r.run(step)
	require.Empty(t, res.Outputs)
	require.Empty(t, res.Secrets)
	require.Empty(t, res.Env)
	require.Nil(t, res.Artifact)
	require.Zero(t, res.Tests.Total)
}

// Rule S5: a secret output in the workspace is removed after the driver has read it.
func TestSecretOutputDoesNotStayInTheWorkspace(t *testing.T) {
	t.Parallel()
	r := newRig(t, withFileLimit(1<<20)).init()
	step := sh("step", `echo S=hidden >> out/secrets`)
	step.SecretVarFile = "out/secrets"
	res, _ := r.run(step)
	require.Equal(t, map[string]string{"S": "hidden"}, res.Secrets)
	_, out := r.run(sh("after", "ls out"))
	require.Empty(t, out)
}
