package pagetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// cloning clones a repository.
func cloning(repository string) string {
	return `
pipeline:
  identifier: cloning
  name: Cloning
  properties:
    ci:
      codebase:
        repoName: file://` + repository + `
        build: {type: branch, spec: {branch: main}}
  stages:
    - stage:
        identifier: build
        name: Build
        type: CI
        spec:
          cloneCodebase: true
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: look, name: Look, type: Run, spec: {command: cat hello}}
`
}

// repository makes a repository with one commit and returns its path.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hello"), []byte("hello from the clone\n"), 0o600))
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main"}, {"add", "."},
		{"-c", "user.name=ada", "-c", "user.email=ada@host.example", "commit", "--quiet", "-m", "Say hello"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return dir
}

// rows returns the names of the rows of the timeline. A wait may be too short for a bar.
const rows = `[...document.querySelectorAll('.timeline li')].filter(r => r.checkVisibility()).map(r => r.querySelector('.name').innerText)`

func TestTheTimelineShowsWhatIsAroundTheSteps(t *testing.T) {
	m := site(t)
	run := start(t, m, api.RunRequest{YAML: cloning(repository(t))})
	require.Equal(t, "SUCCEEDED", ended(t, m, run.ID).Status)
	p := signedIn(t, m)
	p.visit("#/runs/" + run.ID + "?view=timeline")
	p.until(rows + `.includes('Clean up')`)
	want := []string{"Build", "Queue", "Prepare", "Clone", "Look", "Clean up"}
	assert.Equal(t, want, value[[]string](p, rows))
	within := `(() => { const at = s => [...document.querySelectorAll('.timeline li')].find(r => r.innerText.includes(s)).querySelector('.bar').getBoundingClientRect();
		const a = at('Prepare'), b = at('Clone'), c = at('Look'); return b.left >= a.left - 1 && b.right <= a.right + 2 && c.left >= b.right - 2; })()`
	assert.True(t, value[bool](p, within), "the clone is within the init and before the step")

	p.press(".timeline a .name", "Clone")
	p.shows("h1", "Build")
	p.shows(".line", "Checked out")
	p.press(".tabs a", "Timeline")
	p.until(rows + `.includes('Clean up')`)
	assert.Equal(t, want[1:], value[[]string](p, rows))
}
