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

// The clone leaves the branch that the clone of Drone's runners leaves: a push its branch, a tag none, and a pull request
// its target branch.
func TestTheCloneLeavesTheBranchOfTheEvent(t *testing.T) {
	t.Parallel()
	path, first := repository(t)
	git := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=octo", "-c", "user.email=octo@example.com"}, args...)...)
		cmd.Dir = path
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	git("checkout", "-q", "-b", "feature/x")
	git("commit", "-q", "--allow-empty", "-m", "second")
	second := git("rev-parse", "HEAD")
	git("update-ref", "refs/pull/7/head", "HEAD")
	git("checkout", "-q", "main")
	git("tag", "v1", first)
	git("commit", "-q", "--allow-empty", "-m", "third")
	third := git("rev-parse", "HEAD")
	s := serve(t)
	start(t, s, 1, pipelines)
	for name, c := range map[string]struct {
		members map[string]any
		branch  string
		parents string
	}{
		"push":             {map[string]any{"after": third}, "main", first},
		"push of the past": {map[string]any{"after": first}, "main", ""},
		"push of a branch": {map[string]any{"after": second, "ref": "refs/heads/feature/x", "source": "feature/x", "target": "feature/x"}, "feature/x", first},
		"tag":              {map[string]any{"event": "tag", "after": first, "ref": "refs/tags/v1"}, "", ""},
		"pull request":     {map[string]any{"event": "pull_request", "after": second, "ref": "refs/pull/7/head", "source": "feature/x"}, "main", third + " " + second},
		"promotion":        {map[string]any{"event": "promote", "after": third}, "main", first},
	} {
		got := wait(t, s, s.Add(dronetest.Build{
			Type: "exec", Members: c.members, Repository: map[string]any{"git_http_url": path},
			Config: "kind: pipeline\ntype: exec\nname: default\nsteps:\n- {name: a, commands: ['echo \"[$(git branch --show-current)] [$(git log -1 --format=%P)]\"']}\n",
		}))
		require.Equal(t, "success", got.Status, "%s: %+v", name, got)
		assert.Contains(t, logOf(got.Steps[1]), "["+c.branch+"] ["+c.parents+"]\n", name)
	}
}
