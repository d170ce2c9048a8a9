package endtoend_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// The projects: third-party code, with its own tests against Redis.
const (
	goProject = "github.com/hibiken/asynq@v0.26.0"
	cProject  = "hiredis" // Debian's source package
	gotestsum = "gotest.tools/gotestsum@v1.13.0"
	// goTests matches the tests that do not wait for seconds.
	goTests = "^Test(Client|Inspector|ServeMux|Parse|Enqueue|Dequeue|Done|Requeue|Retry|Archive|Forward|Lease)"
)

// imagePackages are the packages that the stages in containers need.
var imagePackages = []string{"gcc", "git", "libc6-dev", "make", "redis-server", "redis-tools"}

// realStage is a file of docs/stages.
type realStage struct {
	file, project string
	values        map[string]string // values for the names between @ in the file
	leastTests    int
	counter       string // output with a number that depends on the tests' use of the service
	artifact      func(t *testing.T, files map[string][]byte)
}

// Rules X2, X3, D2, D4, D5, L2: the bundled manager and delegate run as separate programs,
// connected by a config.env. They build and test a Go and a C project from git, on the host
// and in containers, with the stages of docs/stages, all four at once.
func TestRealProjectsAreBuiltAndTested(t *testing.T) {
	t.Parallel()
	engine := testbed.Docker(t)
	needTool(t, "git", "gcc", "make", "redis-server", "redis-cli", "bash", "awk")
	git := newForge(t)
	git.add(t, "ci", "testdata/realuse")
	git.add(t, "asynq", fetchGo(t, goProject), "ci")
	source := t.TempDir()
	testbed.NewDebian(t).Source(t, cProject, source)
	git.add(t, "hiredis", source, "ci")

	image := engine.Debian(t, imagePackages...)
	values := map[string]string{
		"GIT": git.URL, "PASSWORD": git.password, "IMAGE": image, "TESTS": goTests, "TOOLS": filepath.Dir(buildTool(t, gotestsum)),
		"GOPROXY": goEnv(t, "GOPROXY"), "GOROOT": goEnv(t, "GOROOT"), "GOMODCACHE": goEnv(t, "GOMODCACHE"),
		"BUILDS": filepath.Join(testbed.Cache(t, "realuse"), "go-build"),
	}
	p := startPrograms(t)
	for _, s := range []realStage{
		{file: "go-host", project: "asynq", values: map[string]string{"PORT": freePort(t)}, leastTests: 60, counter: "SCRIPTS_RUN", artifact: isTheGoSource},
		{file: "go-containers", project: "asynq", leastTests: 60, counter: "SCRIPTS_RUN", artifact: isTheGoSource},
		{file: "c-host", project: "hiredis", values: map[string]string{"PORT": freePort(t)}, leastTests: 80, counter: "SLEEPS", artifact: isTheCLibrary},
		{file: "c-containers", project: "hiredis", leastTests: 80, counter: "SLEEPS", artifact: isTheCLibrary},
	} {
		t.Run(s.file, func(t *testing.T) {
			t.Parallel()
			id := s.file + "-" + rand.Text()
			engine.LeavesNothing(t, id)
			st := p.run(t, id, fill(t, "../../docs/stages/"+s.file+".json", values, s.values))
			s.check(t, p, st, git)
		})
	}
	// Since version 7 Redis refuses commands that two of these tests need, unless its
	// configuration allows them.
	t.Run("tests that fail", func(t *testing.T) {
		t.Parallel()
		request := fill(t, "../../docs/stages/c-host.json", values, map[string]string{"PORT": freePort(t)})
		checkFailed(t, p, p.run(t, "c-fails", strings.Replace(request, `"--enable-debug-command", "yes"`, `"--enable-debug-command", "no"`, 1)))
	})
}

// checkFailed checks the result of a stage whose tests fail.
func checkFailed(t *testing.T, p *programs, st api.Stage) {
	t.Helper()
	assert.Equal(t, api.Failure, st.Status)
	assert.Equal(t, `step "test": exit code 1`, st.Error)
	var ended []string
	for _, s := range st.Steps {
		ended = append(ended, s.ID+" "+string(s.Status))
	}
	assert.Equal(t, []string{"cache SUCCESS", "build SUCCESS", "test FAILURE", "package SKIPPED", "stop SUCCESS"}, ended)
	assert.Equal(t, api.Success, st.Cleanup.Status)
	tests := st.Steps[2]
	assert.Contains(t, p.log(t, tests.LogKey), "2 TESTS FAILED")
	require.NotNil(t, tests.Tests)
	assert.Equal(t, 2, tests.Tests.Failed)
	require.Len(t, tests.Tests.Failures, 2)
	assert.Contains(t, tests.Tests.Failures[0].Name, "Does not return a reply when the command times out")
}

func (s realStage) check(t *testing.T, p *programs, st api.Stage, git *forge) {
	t.Helper()
	logs := map[string]string{}
	require.Equal(t, api.Success, st.Init.Status, st.Init.Error)
	for _, part := range st.Steps {
		logs[part.ID] = p.log(t, part.LogKey)
		assert.Equal(t, api.Success, part.Status, "%s: %s\n%s", part.ID, part.Error, logs[part.ID])
	}
	require.Equal(t, api.Success, st.Status, st.Error)
	require.Equal(t, api.Success, st.Cleanup.Status)
	require.Len(t, st.Steps, 5)
	build, tests, pack := st.Steps[1], st.Steps[2], st.Steps[3]

	head := git.head(t, s.project)
	assert.Equal(t, head, build.OutputVars["COMMIT"], "the branch that was asked for, and not the default one")

	require.NotNil(t, tests.Tests, "rule D5")
	assert.GreaterOrEqual(t, tests.Tests.Total, s.leastTests)
	assert.Equal(t, tests.Tests.Total, tests.Tests.Passed+tests.Tests.Skipped)
	assert.Empty(t, tests.Tests.Problems)
	n, err := strconv.Atoi(tests.OutputVars[s.counter])
	assert.NoError(t, err)
	assert.Positive(t, n, "the tests have used the service")

	// The driver's own line comes after the output of the step.
	log, summary, _ := strings.Cut(logs[tests.ID], "Tests: ")
	assert.Equal(t, tests.OutputVars["LOG_SHA256"], sum(log), "rule L2: the log, from its first line to its last")
	assert.True(t, strings.HasPrefix(summary, strconv.Itoa(tests.Tests.Total)+" ("), summary)
	assert.Contains(t, logs["cache"], "Ready to accept connections")
	assert.Contains(t, logs["cache"], "bye bye", "the last line of the service")

	name := s.project + "-" + head[:12]
	assert.Equal(t, "packed "+name+"\n", logs[pack.ID], "the variable of the build reached the last step")
	files := map[string][]byte{}
	for path, content := range unpack(t, pack.Artifact) {
		rel, ok := strings.CutPrefix(path, name+"/")
		assert.True(t, ok, path)
		files[rel] = content
	}
	s.artifact(t, files)
	t.Logf("%d tests, %d passed; artifact of %d bytes, %d files; %s", tests.Tests.Total, tests.Tests.Passed, len(pack.Artifact), len(files),
		st.EndedAt.Sub(st.StartedAt).Round(1e8))
}

func isTheGoSource(t *testing.T, files map[string][]byte) {
	want, err := os.ReadFile(filepath.Join(fetchGo(t, goProject), "server.go"))
	require.NoError(t, err)
	assert.Equal(t, string(want), string(files["server.go"]))
	assert.Contains(t, string(files["go.mod"]), "module github.com/hibiken/asynq\n")
}

func isTheCLibrary(t *testing.T, files map[string][]byte) {
	assert.Contains(t, string(files["include/hiredis/hiredis.h"]), "redisContext")
	assert.True(t, bytes.HasPrefix(files["lib/libhiredis.a"], []byte("!<arch>\n")))
	for path, content := range files {
		if !strings.HasPrefix(path, "lib/libhiredis.so.") {
			continue
		}
		library, err := elf.NewFile(bytes.NewReader(content))
		require.NoError(t, err)
		symbols, err := library.DynamicSymbols()
		require.NoError(t, err)
		for _, s := range symbols {
			if s.Name == "redisConnect" && s.Section != elf.SHN_UNDEF {
				return
			}
		}
	}
	t.Error("there is no library that has redisConnect")
}

// unpack reads the regular files of a .tar.gz.
func unpack(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		if h.Typeflag == tar.TypeReg {
			files[h.Name], err = io.ReadAll(r)
			require.NoError(t, err)
		}
	}
}
