package endtoend_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// surroundings has the text before and after a part of a program on a page, by the beginning of the
// part.
var surroundings = map[string][2]string{
	"routes := router.New(router.RouteMap{": {`
		import ("net/http"; "github.com/rs/zerolog"; "github.com/delegate-io/dlite/router"; "github.com/delegate-io/dlite/task")
		type initTask struct{ http.Handler }
		type executeTask struct{ http.Handler }
		type cleanupTask struct{ http.Handler }
		func _(log zerolog.Logger) any {`, `
 return routes }`},
	"srv := clienttest.NewServer()": {`
		import ("context"; "github.com/delegate-io/dlite/client/clienttest"; "github.com/delegate-io/dlite/task/stage")
		func _(ctx context.Context) (any, any, error) {`, `
 return result.Status(), result.Steps["test"].OutputVars, err }`},
	"poller.WithFilter(": {`
		import ("errors"; "github.com/delegate-io/dlite/poller"; "github.com/delegate-io/dlite/task")
		func _(busy func() bool) any { return `, `}`},
	"server := dronetest.New(": {`
		import ("context"; "runtime"; "github.com/delegate-io/dlite/client/drone/dronetest")
		func _(ctx context.Context, run func(context.Context, string, string, string) error, dir, pipeline string, ended chan error) (any, error) {`, `
 return stages, err }`},
	"type lines struct": {`
		import ("strings"; "github.com/delegate-io/dlite/logger")
		var old interface{ Info(args ...any) }
		`, ``},
}

// The programs of README.md, docs/drone.md and docs/migrating.md compile. The page on migrating also has parts of
// programs, and programs that use harness/dlite, which are left out.
func TestTheProgramsOfThePagesCompile(t *testing.T) {
	t.Parallel()
	const root = "../.."
	for page, want := range map[string]int{"README.md": 1, "docs/migrating.md": 5, "docs/drone.md": 2} {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		compiled := 0
		for i, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			if program := programOf(block[1]); program != "" {
				compileProgram(t, root, page+", block "+strconv.Itoa(i+1), program)
				compiled++
			}
		}
		assert.Equal(t, want, compiled, "%s: programs", page)
	}
}

// programOf returns the program of a block, empty if the block is not part of one.
func programOf(block string) string {
	if strings.HasPrefix(block, "package main\n") {
		if strings.Contains(block, `"github.com/harness/`) {
			return ""
		}
		return block
	}
	for beginning, around := range surroundings {
		if strings.HasPrefix(block, beginning) {
			// No statement can follow a method: it becomes a declaration.
			declared := strings.Replace(block, "\nlog, _, err := ", "\nvar log, _, err = ", 1)
			return "package part\n" + around[0] + declared + around[1]
		}
	}
	return ""
}

func compileProgram(t *testing.T, root, name, program string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, file)
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0") // like all programs of this project
	out, err := build.CombinedOutput()
	assert.NoError(t, err, "%s: %s", name, out)
}
