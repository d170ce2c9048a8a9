package drone_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client/drone/dronetest"
)

// repository returns the path and the commit of a new repository with the file greeting.
func repository(t *testing.T) (path, commit string) {
	t.Helper()
	path = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(path, "greeting"), []byte("hello from git\n"), 0o600))
	var out []byte
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"}, {"add", "."},
		{"-c", "user.name=octo", "-c", "user.email=octo@example.com", "commit", "-q", "-m", "first"}, {"rev-parse", "HEAD"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = path
		var err error
		out, err = cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return path, strings.TrimSpace(string(out))
}

// The init clones the repository. The step "clone" has its result and its log.
func TestTheRepositoryIsCloned(t *testing.T) {
	t.Parallel()
	path, commit := repository(t)
	s := serve(t)
	start(t, s, 1, pipelines)
	build := dronetest.Build{
		Type: "exec", Config: "kind: pipeline\ntype: exec\nname: default\nsteps:\n- {name: a, commands: [cat greeting]}\n",
		Members: map[string]any{"after": commit}, Repository: map[string]any{"git_http_url": path},
	}
	got := wait(t, s, s.Add(build))
	require.Equal(t, []string{"clone success 0", "a success 0"}, summary(got), "%+v", got)
	assert.Contains(t, logOf(got.Steps[1]), "hello from git")
	assert.NotEmpty(t, logOf(got.Steps[0]))
	assert.Equal(t, 1, got.Steps[0].Ends)

	build.Members = map[string]any{"after": strings.Repeat("0123456789", 4)}
	got = wait(t, s, s.Add(build))
	assert.Equal(t, []string{"clone failure 1", "a skipped 0"}, summary(got), "%+v", got)
	assert.Equal(t, "failure", got.Status)
	assert.NotEmpty(t, logOf(got.Steps[0]))
}
