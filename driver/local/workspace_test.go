package local_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task/stage"
)

// Rule D7: in a pod the workspace is a volume that several drivers share.
func TestAConfiguredWorkspaceIsSharedAndKept(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	one, two := newRig(t, withWorkspace(dir)), newRig(t, withWorkspace(dir))
	one.env.Files = []*stage.File{{Path: "from-init", Data: "hello"}}
	one.init()
	two.init()
	res, out := one.run(sh("step", `pwd; echo $DLITE_WORKSPACE; echo kept > file`))
	require.Zero(t, res.ExitCode)
	assert.Equal(t, dir+"\n"+dir+"\n", out)
	step := sh("step", "cat ../file ../from-init")
	step.WorkingDir = "/workspace/below" // the driver creates it in the workspace
	_, out = two.run(step)
	assert.Equal(t, "kept\nhello", out)
	one.cleanup()
	two.cleanup()
	assert.FileExists(t, filepath.Join(dir, "file"))
	assert.DirExists(t, filepath.Join(dir, "below"))
}

func TestAConfiguredWorkspaceMustExistAndIsNeverRemoved(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{file, file + "-missing"} {
		_, err := newDriver(withWorkspace(dir))
		require.Error(t, err, dir)
	}
	dir := t.TempDir()
	r := newRig(t, withWorkspace(dir))
	r.env.Volumes = []*stage.Volume{{Host: &stage.HostVolume{ID: "v", Name: "v", Path: filepath.Dir(dir), Remove: true}}}
	require.ErrorContains(t, r.d.Init(t.Context(), r.env, r.ledger), "cannot be removed")
}
