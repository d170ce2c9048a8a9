package storage

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const paths = `["node_modules","~/.m2","/go/pkg/mod"]`

// fill makes the files of a build.
func (m *machine) fill(t testing.TB) {
	t.Helper()
	file(t, m.workspace, "package-lock.json", "{}")
	file(t, m.workspace, "node_modules/a/index.js", "a")
	file(t, m.workspace, "node_modules/a/"+strings.Repeat("long", 50)+"/ü.js", "")
	require.NoError(t, os.Chmod(filepath.Join(m.workspace, "node_modules/a/index.js"), 0o755))
	require.NoError(t, os.Symlink("../a/index.js", filepath.Join(m.workspace, "node_modules/link")))
	require.NoError(t, os.Symlink("/usr/bin/env", filepath.Join(m.workspace, "node_modules/outside")))
	file(t, m.home, ".m2/settings.xml", "m2")
	file(t, m.shared, "mod/x@v1/x.go", "package x")
	require.NoError(t, os.Chmod(filepath.Join(m.shared, "mod/x@v1"), 0o555))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(m.shared, "mod/x@v1"), 0o755) })
	old := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	require.NoError(t, os.Chtimes(filepath.Join(m.home, ".m2/settings.xml"), old, old))
}

func TestACacheComesBackOnAnotherMachine(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"", "tar", "gzip"} {
		t.Run("format "+format, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			m := newMachine(t, s)
			m.fill(t)
			env := map[string]string{
				"PLUGIN_CACHE_KEY": `node {{ os }}/{{arch}} {{ checksum "package-lock.json" }}`, "PLUGIN_PATHS": paths, "PLUGIN_ARCHIVE_FORMAT": format,
				"PLUGIN_PREFIX": "/team/",
			}
			out := m.must(t, "save", env)
			assert.Contains(t, out, `Saved the cache "node `+runtime.GOOS+"/"+runtime.GOARCH+" ")
			for _, name := range s.objects(t) {
				assert.True(t, strings.HasPrefix(name, "team/dlite-cache/v1/"), name)
			}

			other := newMachine(t, s)
			file(t, other.workspace, "package-lock.json", "{}")
			file(t, other.workspace, "node_modules/a/index.js", "an older one")
			out = other.must(t, "restore", env)
			assert.Contains(t, out, "Restored the cache")
			t.Cleanup(func() { _ = os.Chmod(filepath.Join(other.shared, "mod/x@v1"), 0o755) })
			for _, pair := range [][2]string{{m.workspace, other.workspace}, {m.home, other.home}, {m.shared, other.shared}} {
				want, got := tree(t, pair[0]), tree(t, pair[1])
				delete(want, "package-lock.json")
				delete(got, "package-lock.json")
				assert.Equal(t, want, got)
			}
			other.must(t, "restore", env) // over its own files, also in directories without the right to write
		})
	}
}

func TestAMissIsNoFailureUnlessTheStepAsksForIt(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newService(t))
	assert.Contains(t, m.must(t, "restore", map[string]string{"PLUGIN_CACHE_KEY": "k"}), `There is no cache "k".`)
	_, err := m.do(t, "restore", map[string]string{"PLUGIN_CACHE_KEY": "k", "PLUGIN_FAIL_RESTORE_IF_KEY_NOT_PRESENT": "true"})
	require.ErrorContains(t, err, `there is no cache "k"`)
	out := m.must(t, "restore", map[string]string{"PLUGIN_CACHE_KEY": `{{ checksum "go.sum" }}`})
	assert.Contains(t, out, `The cache was not restored: the checksum of its key needs the file "go.sum", which does not exist`)
	out = m.must(t, "save", map[string]string{"PLUGIN_CACHE_KEY": "k", "PLUGIN_PATHS": `["nothing"]`})
	assert.Contains(t, out, "none of its paths exists: nothing")
	assert.Empty(t, m.service.objects(t), "nothing may be published")
	file(t, m.workspace, "x", "x")
	out = m.must(t, "save", map[string]string{"PLUGIN_CACHE_KEY": "k", "PLUGIN_PATHS": `["x"]`, "PLUGIN_BUCKET": "other"})
	assert.Contains(t, out, "the bucket other does not exist")
}

func TestARestoreReportsAHit(t *testing.T) {
	t.Parallel()
	s := newService(t)
	first := newMachine(t, s)
	first.fill(t)
	outputs := filepath.Join(t.TempDir(), "output")
	env := map[string]string{"PLUGIN_CACHE_KEY": "k", "PLUGIN_PATHS": `["cache"]`, "DRONE_OUTPUT": outputs}
	first.must(t, "restore", env)
	file(t, first.workspace, "cache/a", "1")
	first.must(t, "save", env)
	first.must(t, "restore", env)
	text, err := os.ReadFile(outputs)
	require.NoError(t, err)
	require.Equal(t, "cacheHit=false\ncacheHit=true\n", string(text))
}

func TestWrongSettingsAreErrors(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newService(t))
	for want, env := range map[string]map[string]string{
		"bucket is required":           {"PLUGIN_BUCKET": ""},
		"region is required":           {"PLUGIN_ENDPOINT": ""},
		"endpoint must be a URL":       {"PLUGIN_ENDPOINT": "https://s3.example/bucket"},
		"PLUGIN_OVERRIDE must be true": {"PLUGIN_OVERRIDE": "often"},
		"archiveFormat is \"zip\"":     {"PLUGIN_ARCHIVE_FORMAT": "Zip"},
		"policy is \"never\"":          {"PLUGIN_POLICY": "never"},
		"both access_key_secret":       {"PLUGIN_SECRET_KEY": ""},
		"leaves its directory":         {"PLUGIN_PATHS": `["../x"]`},
		"{{ epoch }} is not known":     {"PLUGIN_CACHE_KEY": "{{ epoch }}"},
		"{{ without }}":                {"PLUGIN_CACHE_KEY": "{{ os"},
		"is not in the workspace":      {"PLUGIN_CACHE_KEY": `{{ checksum "../../etc/passwd" }}`},
		"is empty or too long":         {"PLUGIN_CACHE_KEY": strings.Repeat("x", maxKey+1)},
		"sourcePaths is required":      {"PLUGIN_PATHS": ""},
	} {
		all := map[string]string{"PLUGIN_CACHE_KEY": "k", "PLUGIN_PATHS": `["x"]`}
		for k, v := range env {
			all[k] = v
		}
		_, err := m.do(t, "save", all)
		assert.ErrorContains(t, err, want)
	}
	_, err := m.do(t, "remove", map[string]string{"PLUGIN_CACHE_KEY": "k"})
	assert.ErrorContains(t, err, "use restore, save or upload")
}

func TestEqualPartsAreStoredOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newService(t))
	random := make([]byte, 3*partSize)
	_, _ = rand.Read(random)
	file(t, m.workspace, "data/big", string(random))
	save := func(key, override string) (string, int64) {
		before := m.service.puts.Load()
		out := m.must(t, "save", map[string]string{"PLUGIN_CACHE_KEY": key, "PLUGIN_PATHS": `["data"]`, "PLUGIN_OVERRIDE": override})
		return out, m.service.puts.Load() - before
	}
	_, puts := save("first", "")
	require.EqualValues(t, 5, puts, "four parts and the index")
	out, puts := save("second", "")
	assert.EqualValues(t, 1, puts, "the index")
	assert.Contains(t, out, "of which the bucket had 4")
	out, puts = save("first", "false")
	assert.Zero(t, puts)
	assert.Contains(t, out, `The cache "first" exists since `)

	// A rule of the bucket may delete old parts soon.
	m.service.clock.ahead.Store(-int64(fresh + time.Hour))
	_, _ = rand.Read(random)
	file(t, m.workspace, "data/big", string(random))
	save("third", "")
	m.service.clock.ahead.Store(0)
	_, puts = save("third", "true")
	assert.EqualValues(t, 5, puts, "all are written again")
}

func TestAKeyPointsToTheOldOrTheNewCache(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newService(t))
	env := map[string]string{"PLUGIN_CACHE_KEY": "k", "PLUGIN_PATHS": `["f"]`, "PLUGIN_OVERRIDE": "true"}
	file(t, m.workspace, "f", "old")
	m.must(t, "save", env)
	file(t, m.workspace, "f", "new")
	for _, broken := range []string{"/parts/", "/keys/"} {
		m.service.setRefuse(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, broken) {
				panic(http.ErrAbortHandler) // the connection breaks
			}
			return false
		})
		out := m.must(t, "save", env)
		assert.Contains(t, out, "The cache was not saved: ")
		m.service.setRefuse(func(http.ResponseWriter, *http.Request) bool { return false })
		other := newMachine(t, m.service)
		other.must(t, "restore", env)
		assert.Equal(t, "old", content(t, other.workspace, "f"))
	}
}

func TestAKilledSaveLeavesTheOldCache(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newService(t))
	env := map[string]string{"PLUGIN_CACHE_KEY": "k", "PLUGIN_PATHS": `["d"]`, "PLUGIN_OVERRIDE": "true", "PLUGIN_ARCHIVE_FORMAT": "tar"}
	file(t, m.workspace, "d/f", "old")
	m.must(t, "save", env)
	file(t, m.workspace, "d/f", "new")
	random := make([]byte, 6*partSize)
	_, _ = rand.Read(random)
	file(t, m.workspace, "d/big", string(random))

	for range 2 {
		<-m.service.written // the part and the index of the old cache
	}
	var parts atomic.Int64
	m.service.setRefuse(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && parts.Add(1) > 2 {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done() // the program is killed
			return true
		}
		return false
	})
	cmd := exec.CommandContext(t.Context(), os.Args[0], Name, "save")
	for name, value := range m.environment(t, env) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	require.NoError(t, cmd.Start())
	for range 2 {
		<-m.service.written
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	m.service.setRefuse(func(http.ResponseWriter, *http.Request) bool { return false })

	other := newMachine(t, m.service)
	other.must(t, "restore", env)
	assert.Equal(t, "old", content(t, other.workspace, "d/f"))
	assert.Contains(t, m.must(t, "save", env), "of which the bucket had 2", "the next save continues")
	other = newMachine(t, m.service)
	other.must(t, "restore", env)
	assert.Equal(t, "new", content(t, other.workspace, "d/f"))
}

func TestSavesOfOneKeyAtTheSameTimeLeaveOneOfThem(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var all sync.WaitGroup
	for i := range 8 {
		m := newMachine(t, s)
		for n := range 20 {
			file(t, m.workspace, fmt.Sprintf("d/%d", n), fmt.Sprint("content of ", i))
		}
		all.Go(func() {
			out, err := m.do(t, "save", map[string]string{"PLUGIN_CACHE_KEY": "k", "PLUGIN_PATHS": `["d"]`, "PLUGIN_OVERRIDE": "true"})
			assert.NoError(t, err, out)
		})
	}
	all.Wait()
	m := newMachine(t, s)
	m.must(t, "restore", map[string]string{"PLUGIN_CACHE_KEY": "k"})
	first := content(t, m.workspace, "d/0")
	assert.Contains(t, first, "content of ")
	for n := range 20 {
		assert.Equal(t, first, content(t, m.workspace, fmt.Sprintf("d/%d", n)))
	}
}

func TestACacheWithoutKeyAndPathsFollowsTheProjects(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newService(t))
	auto := map[string]string{"PLUGIN_POLICY": "pull-push"}
	assert.Contains(t, m.must(t, "restore", auto), "no file with dependencies that is known here")
	file(t, m.workspace, "web/package-lock.json", "1")
	file(t, m.workspace, "go.sum", "1")
	file(t, m.workspace, "web/node_modules/x/package-lock.json", "not a project")
	file(t, m.workspace, "web/node_modules/x/index.js", "x")
	file(t, m.home, "go/pkg/mod/m.go", "m")
	assert.Contains(t, m.must(t, "save", auto), `Saved the cache "auto-`)
	other := newMachine(t, m.service)
	file(t, other.workspace, "web/package-lock.json", "1")
	file(t, other.workspace, "go.sum", "1")
	assert.Contains(t, other.must(t, "restore", auto), "Restored")
	assert.Equal(t, "x", content(t, other.workspace, "web/node_modules/x/index.js"))
	assert.Equal(t, "m", content(t, other.home, "go/pkg/mod/m.go"))
	file(t, other.workspace, "go.sum", "2")
	assert.Contains(t, other.must(t, "restore", auto), "There is no cache")
}

func TestAPolicyLimitsTheWork(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newService(t))
	file(t, m.workspace, "f", "f")
	assert.Contains(t, m.must(t, "save", map[string]string{"PLUGIN_POLICY": "pull"}), "its policy is pull")
	assert.Contains(t, m.must(t, "restore", map[string]string{"PLUGIN_POLICY": "push"}), "its policy is push")
	assert.Empty(t, m.service.objects(t))
}

func TestUploadsKeepTheirPaths(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newService(t))
	file(t, m.workspace, "dist/app.js", "app")
	file(t, m.workspace, "dist/css/app.css", "css")
	file(t, m.workspace, "dist/notes.txt", "notes")
	for source, want := range map[string][]string{
		"dist":                 {"releases/dist/app.js", "releases/dist/css/app.css", "releases/dist/notes.txt"},
		"/workspace/dist/*.js": {"releases/dist/app.js"},
		"dist/css/app.css":     {"releases/dist/css/app.css"},
	} {
		s := newService(t)
		m.service = s
		out := m.must(t, "upload", map[string]string{"PLUGIN_SOURCE": source, "PLUGIN_TARGET": "releases/"})
		assert.ElementsMatch(t, want, s.objects(t), source)
		assert.Contains(t, out, fmt.Sprintf("Uploaded %d files", len(want)))
	}
	_, err := m.do(t, "upload", map[string]string{"PLUGIN_SOURCE": "*.zip"})
	require.ErrorContains(t, err, `there is no file "*.zip"`)
	_, err = m.do(t, "upload", map[string]string{"PLUGIN_SOURCE": "dist", "PLUGIN_BUCKET": "other"})
	require.ErrorContains(t, err, "the bucket other does not exist")
}

func content(t testing.TB, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(b)
}
