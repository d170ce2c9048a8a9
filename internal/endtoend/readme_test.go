package endtoend_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The programs in the README compile unchanged.
func TestTheProgramsOfTheReadmeCompile(t *testing.T) {
	t.Parallel()
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	programs := regexp.MustCompile("(?s)```go\n(package main.*?)```").FindAllSubmatch(text, -1)
	require.NotEmpty(t, programs)
	for _, p := range programs {
		dir := t.TempDir()
		file := filepath.Join(dir, "main.go")
		require.NoError(t, os.WriteFile(file, p[1], 0o600))
		build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "program"), file)
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0") // like all programs of this project
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
