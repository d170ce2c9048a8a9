package podagent_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/podagent"
	"github.com/delegate-io/dlite/task/stage"
)

// recorder is a driver that records its calls.
type recorder struct {
	driver.Driver
	env  *driver.Environment
	step *driver.Step
}

func (r *recorder) Execute(_ context.Context, env *driver.Environment, step *driver.Step, _ io.Writer, _ driver.Ledger) (*driver.Result, error) {
	r.env, r.step = env, step
	return &driver.Result{ExitCode: 3}, nil
}

// Rule D7: the variables of the image come first, and those of the agent are left out.
func TestAStepHasTheImagesVariables(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	d := podagent.Inside(r, []string{"PATH=/image", "SHARED=image", "DLITE_POD_TOKEN=hunter2", "=odd", "none"})
	env := &driver.Environment{Envs: map[string]string{"SHARED": "transaction"}}
	own := &driver.Step{Step: stage.Step{Environment: map[string]string{"GIT_CONFIG_COUNT": "0"}}}
	res, err := d.Execute(t.Context(), env, own, io.Discard, nil)
	require.NoError(t, err)
	assert.Equal(t, 3, res.ExitCode)
	assert.Equal(t, map[string]string{"PATH": "/image", "SHARED": "transaction"}, r.env.Envs)
	assert.Equal(t, map[string]string{"SHARED": "transaction"}, env.Envs, "the caller's is its own")
}

// Rule D7: git trusts the workspace, unless the step configures git by variables.
func TestGitTrustsTheWorkspace(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	for _, c := range []struct{ image, step, want string }{{"", "", "/workspace"}, {"1", "", ""}, {"", "1", ""}} {
		var environ []string
		if c.image != "" {
			environ = []string{"GIT_CONFIG_COUNT=" + c.image}
		}
		step := &driver.Step{Step: stage.Step{User: "builder", Environment: map[string]string{"GIT_CONFIG_COUNT": c.step}}}
		_, err := podagent.Inside(r, environ).Execute(t.Context(), &driver.Environment{}, step, io.Discard, nil)
		require.NoError(t, err)
		assert.Equal(t, c.want, r.env.Envs["GIT_CONFIG_VALUE_0"])
	}
}

// Rule D7: files outside the workspace are written in the container, the others by the
// driver.
func TestFilesOutOfTheWorkspaceAreMade(t *testing.T) {
	t.Parallel()
	dir, r := t.TempDir(), &recorder{}
	files := []*stage.File{
		{Path: "in"}, {Path: podagent.Workspace + "/in"}, {Path: podagent.Workspace}, nil,
		{Path: filepath.Join(dir, "a", "file"), Data: "text", Mode: 0o751}, {Path: filepath.Join(dir, "folder"), IsDir: true},
	}
	_, err := podagent.Inside(r, nil).Execute(t.Context(), &driver.Environment{}, &driver.Step{Step: stage.Step{Files: files}}, io.Discard, nil)
	require.NoError(t, err)
	assert.Equal(t, files[:4], r.step.Files)
	b, err := os.ReadFile(filepath.Join(dir, "a", "file"))
	require.NoError(t, err)
	assert.Equal(t, "text", string(b))
	info, err := os.Stat(filepath.Join(dir, "a", "file"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o751), info.Mode())
	assert.DirExists(t, filepath.Join(dir, "folder"))

	files = []*stage.File{{Path: filepath.Join(dir, "a", "file", "below")}}
	r.step = nil
	_, err = podagent.Inside(r, nil).Execute(t.Context(), &driver.Environment{}, &driver.Step{Step: stage.Step{ID: "s", Files: files}}, io.Discard, nil)
	require.ErrorContains(t, err, "below")
	assert.Nil(t, r.step)
}
