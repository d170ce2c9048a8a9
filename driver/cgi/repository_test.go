//go:build unix

package cgi_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	netcgi "net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/cgi"
	"github.com/delegate-io/dlite/task"
)

// repo is a git repository on this machine.
type repo struct {
	t   *testing.T
	dir string
}

func newRepo(t *testing.T) *repo {
	t.Helper()
	r := &repo{t: t, dir: t.TempDir()}
	r.git("init", "--quiet", "--initial-branch=main")
	return r
}

func (r *repo) git(args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	require.NoError(r.t, err, string(out))
	return strings.TrimSpace(string(out))
}

// commit writes files and commits them; a name that ends with "*" is executable.
func (r *repo) commit(files map[string]string) string {
	r.t.Helper()
	for name, text := range files {
		name, x := strings.CutSuffix(name, "*")
		mode := os.FileMode(0o644)
		if x {
			mode = 0o755
		}
		file := filepath.Join(r.dir, name)
		require.NoError(r.t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(r.t, os.WriteFile(file, []byte(text), mode))
	}
	r.git("add", "--all")
	r.git("commit", "--quiet", "--message=x")
	return r.git("rev-parse", "HEAD")
}

// scriptFiles are a repository with a script that says text and reads a file of its
// own.
func scriptFiles(text string) map[string]string {
	return map[string]string{
		"task.yml":     "task:\n  deps:\n    apt:\n    - golang\n  run:\n    bash:\n      script: bin/run.sh\n",
		"bin/run.sh":   "printf 'A: b\\n\\n%s %s' \"${BASH_VERSION:+bash}\" \"$(cat data.txt)\"\n",
		"data.txt":     text,
		"sub/other.md": "x",
	}
}

func fromRepo(of map[string]string) *wire { return &wire{Repository: of} }

// Rule D8: a script of a repository runs in it; a branch is followed, a commit is kept.
func TestAScriptOfARepository(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	src := newRepo(t)
	first := src.commit(scriptFiles("one"))
	src.git("tag", "--annotate", "--message=x", "v1")
	main := fromRepo(map[string]string{"clone": src.dir, "ref": "main"})
	assert.Equal(t, "bash one", string(r.answer(main, "1").Body))
	second := src.commit(map[string]string{"data.txt": "two"})
	assert.Equal(t, "bash two", string(r.answer(main, "1").Body), "a branch moves")
	assert.Equal(t, "bash two", string(r.answer(fromRepo(map[string]string{"clone": src.dir}), "1").Body), "the default branch")
	assert.Equal(t, "bash one", string(r.answer(fromRepo(map[string]string{"clone": src.dir, "ref": "v1"}), "1").Body), "a tag with a message")
	assert.Equal(t, "bash two", string(r.answer(fromRepo(map[string]string{"clone": src.dir, "ref": "refs/heads/main"}), "1").Body))
	assert.Equal(t, 2, strings.Count(r.logs.String(), "Cloning "), "once for each commit")
	assert.Contains(t, r.logs.String(), "are not installed")

	// A cached program needs neither the network nor another clone.
	require.NoError(t, os.RemoveAll(src.dir))
	for sha, want := range map[string]string{first: "bash one", strings.ToUpper(second): "bash two"} {
		assert.Equal(t, want, string(r.answer(fromRepo(map[string]string{"clone": src.dir, "sha": sha}), "1").Body))
	}
}

// A commit that is the tip of nothing is found too, by who shares the cache once.
func TestACommitOfARepository(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	src := newRepo(t)
	first := src.commit(scriptFiles("one"))
	src.commit(map[string]string{"data.txt": "two"})
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			assert.Equal(t, "bash one", string(r.answer(fromRepo(map[string]string{"clone": src.dir, "ref": "main", "sha": first}), "1").Body))
		})
	}
	wg.Wait()
	assert.Equal(t, 1, strings.Count(r.logs.String(), "Cloning "))
	left, err := filepath.Glob(filepath.Join(r.cache, "*.part-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// Rule D8: a Go module is built, once, and runs with net/http/cgi.
func TestAGoModuleOfARepository(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	src := newRepo(t)
	src.commit(map[string]string{
		"go.mod":       "module task.example/x\n\ngo 1.22\n",
		"cmd/main.go":  goProgram,
		"task.yml":     "task:\n  run:\n    go:\n      module: task.example/x/cmd\n",
		"lib/empty.go": "package lib\n",
	})
	w := fromRepo(map[string]string{"clone": src.dir, "ref": "main"})
	w.Envs = []string{"REQUEST_METHOD=ignored"}
	for range 2 {
		a := r.answer(w, `{"id":1}`)
		assert.Equal(t, "ok", string(a.Body))
		assert.Equal(t, 200, a.StatusCode)
	}
	assert.Equal(t, 1, strings.Count(r.logs.String(), "Building task.example/x/cmd"))
}

// Rule D8: a build that is stopped leaves nothing behind, in the cache or elsewhere. Not
// parallel: it sets variables. The compiler is a stand-in that can be stopped in time.
func TestABuildThatIsStoppedLeavesNothing(t *testing.T) {
	bin, elsewhere := t.TempDir(), t.TempDir()
	compiler := "#!/bin/sh\ntouch \"${GOTMPDIR:-$TMPDIR}/left\" \"$TMPDIR/left\"; echo building >&2; exec sleep 600\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte(compiler), 0o755)) //nolint:gosec // a program
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	r := newRig(t)
	src := newRepo(t)
	src.commit(map[string]string{"task.yml": "task:\n  run:\n    go:\n      module: ./x\n"})
	t.Setenv("TMPDIR", elsewhere)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		r.logs.waitFor(t, "building\n")
		cancel()
	})
	resp := r.call(ctx, fromRepo(map[string]string{"clone": src.dir}), "1")
	wg.Wait()
	assert.Equal(t, task.Failed, resp.Code)
	for _, dir := range []string{elsewhere, r.cache} {
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range left {
			assert.True(t, strings.HasSuffix(e.Name(), ".lock"), e.Name())
		}
	}
}

// Not parallel: it sets the PATH. The package managers are stand-ins, as real ones
// would change the machine.
func TestDependenciesAreInstalledWhereThatIsAllowed(t *testing.T) {
	bin := t.TempDir()
	calls := filepath.Join(bin, "calls")
	for name, text := range map[string]string{
		"sudo": `[ "$1" = -n ] && shift; exec "$@"`, "apt-get": `echo "apt-get $*" >>` + calls, "brew": `echo "brew $*" >>` + calls,
		"dpkg-query": `for p; do [ "$p" != missing ] || exit 1; done; printf 'installed\ninstalled\n'`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755)) //nolint:gosec // a program
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	run := func(packages string, install bool) (string, *task.Response) {
		_ = os.Remove(calls)
		src := newRepo(t)
		files := scriptFiles("x")
		files["task.yml"] = "task:\n  deps:\n    apt: " + packages + "\n    brew: " + packages + "\n  run:\n    bash:\n      script: bin/run.sh\n"
		src.commit(files)
		r := newRig(t, func(c *cgi.Config) { c.InstallDeps = install })
		resp := r.call(t.Context(), fromRepo(map[string]string{"clone": src.dir}), "1")
		b, _ := os.ReadFile(calls)
		return string(b), resp
	}
	did, resp := run("[{name: missing}, golang-go=1.2]", true)
	require.Equal(t, task.OK, resp.Code, resp.Error)
	if runtime.GOOS == "darwin" {
		assert.Equal(t, "brew install -- missing golang-go=1.2\n", did)
		return
	}
	assert.Equal(t, "apt-get -q -y -o DPkg::Lock::Timeout=300 update\napt-get -q -y -o DPkg::Lock::Timeout=300 install -- missing golang-go=1.2\n", did)
	for packages, install := range map[string]bool{"[{name: missing}]": false, "[jq, curl]": true, "[]": true} {
		did, resp = run(packages, install)
		assert.Equal(t, task.OK, resp.Code, resp.Error)
		assert.Empty(t, did, packages)
	}
	for _, packages := range []string{"['--reinstall']", "[./evil.deb]", "[{name: 'a b'}]", "[{}]"} {
		did, resp = run(packages, true)
		assert.Contains(t, resp.Error, "is not the name of a package", packages)
		assert.Empty(t, did)
	}
	require.NoError(t, os.WriteFile(filepath.Join(bin, "apt-get"), []byte("#!/bin/sh\necho 'E: no network' >&2; exit 100\n"), 0o755)) //nolint:gosec // a program
	_, resp = run("[missing]", true)
	assert.Contains(t, resp.Error, "install the dependencies: exit code 100; it said: E: no network")
}

func TestARepositoryThatCannotBeRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for want, files := range map[string]map[string]string{
		"it has no task.yml":              {"README.md": "x"},
		"has neither a Go module":         {"task.yml": "task:\n  run: {}\n"},
		"has neither a Go module nor a":   {"task.yml": "task:\n  run:\n    bash:\n      script: ../../escape.sh\n"},
		"run.sh: no such file":            {"task.yml": "task:\n  run:\n    bash:\n      script: run.sh\n"},
		"the script is not a file":        {"task.yml": "task:\n  run:\n    bash:\n      script: dir\n", "dir/x": ""},
		"task.yml: ":                      {"task.yml": "task: [\n"},
		"go build: exit code 1; it said:": {"task.yml": "task:\n  run:\n    go:\n      module: .\n", "go.mod": "module x.example/x\n", "main.go": "package main\nfunc main() { broken }\n"},
	} {
		src := newRepo(t)
		src.commit(files)
		resp := r.call(t.Context(), fromRepo(map[string]string{"clone": src.dir}), "1")
		assert.Equal(t, task.Failed, resp.Code, want)
		assert.Contains(t, resp.Error, want)
	}
	src := newRepo(t)
	src.commit(scriptFiles("x"))
	for want, of := range map[string]map[string]string{
		"has no missing":       {"clone": src.dir, "ref": "missing"},
		"full name of a":       {"clone": src.dir, "sha": "abc"},
		"ref is not a valid":   {"clone": src.dir, "ref": "--upload-pack=x"},
		"transport that runs":  {"clone": "ext::sh -c x"},
		"has no url":           {"ref": "main"},
		"url must begin":       {"download": "file:///etc/passwd"},
		"git fetch: exit code": {"clone": src.dir + "-missing", "sha": strings.Repeat("a", 40)},
	} {
		resp := r.call(t.Context(), fromRepo(of), "1")
		assert.Equal(t, task.Failed, resp.Code, want)
		assert.Contains(t, resp.Error, want)
	}
	// Nothing broken is in the cache.
	entries, err := os.ReadDir(r.cache)
	require.NoError(t, err)
	for _, e := range entries {
		assert.True(t, strings.HasSuffix(e.Name(), ".lock") || strings.HasPrefix(e.Name(), "go"), e.Name())
	}
}

// Rules S3 and S5: a private repository's credentials are shown to its server alone.
func TestAPrivateRepository(t *testing.T) {
	t.Parallel()
	src := newRepo(t)
	src.commit(scriptFiles("private"))
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	require.NoError(t, err)
	backend := &netcgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), Root: "/", Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(src.dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if u, p, _ := req.BasicAuth(); u != "me" || p != "visibly-fake" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, req)
	}))
	t.Cleanup(srv.Close)
	url := strings.Replace(srv.URL, "http://", "http://me:visibly-fake@", 1) + "/" + filepath.Base(src.dir) + "/.git"
	r := newRig(t)
	assert.Equal(t, "bash private", string(r.answer(fromRepo(map[string]string{"clone": url}), "1").Body))
	resp := r.call(t.Context(), fromRepo(map[string]string{"clone": url + "-missing"}), "1")
	assert.Equal(t, task.Failed, resp.Code)
	for _, text := range []string{r.logs.String(), resp.Error} {
		assert.NotContains(t, text, "visibly-fake")
	}
	require.NoError(t, filepath.WalkDir(r.cache, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.NotContains(t, string(b), "visibly-fake", path)
		}
		return err
	}))
}

// The environment that the delegate adds for git reaches git: the repository of the task has
// another address there.
func TestGitOfARepositoryUsesTheEnvironmentOfTheDelegate(t *testing.T) {
	t.Parallel()
	src := newRepo(t)
	src.commit(scriptFiles("behind a proxy"))
	r := newRig(t, func(c *cgi.Config) {
		c.GitEnvironment = func(dir string) (map[string]string, error) {
			assert.DirExists(t, dir)
			return map[string]string{
				"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "url." + src.dir + ".insteadOf", "GIT_CONFIG_VALUE_0": "https://git.invalid/repo",
			}, nil
		}
	})
	assert.Equal(t, "bash behind a proxy", string(r.answer(fromRepo(map[string]string{"clone": "https://git.invalid/repo"}), "1").Body))
}

// entry is a file of an archive; with a link it is that.
type entry struct{ name, text, link string }

func archiveOf(prefix string) []entry {
	list := []entry{{name: prefix + "link.txt", link: "data.txt"}}
	for name, text := range scriptFiles("archived") {
		list = append(list, entry{name: prefix + name, text: text})
	}
	return list
}

func tarOf(t *testing.T, list []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "x"}}))
	for _, e := range list {
		h := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.text)), Typeflag: tar.TypeReg}
		if e.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		}
		require.NoError(t, w.WriteHeader(h))
		_, err := w.Write([]byte(e.text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func zipOf(t *testing.T, list []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range list {
		h := &zip.FileHeader{Name: e.name}
		h.SetMode(0o644)
		if e.link != "" {
			h.SetMode(0o777 | os.ModeSymlink)
			e.text = e.link
		}
		f, err := w.CreateHeader(h)
		require.NoError(t, err)
		_, err = f.Write([]byte(e.text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// Rule D8: archives of repositories, as their hosts make them and as tar does.
func TestAnArchiveOfARepository(t *testing.T) {
	t.Parallel()
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	for name, b := range map[string][]byte{
		"tar.gz": gzipped(t, tarOf(t, archiveOf("repo-1.0/"))), "tar": tarOf(t, archiveOf("repo-1.0/")),
		"tar.zst": z.EncodeAll(tarOf(t, archiveOf("repo-1.0/")), nil), "zip": zipOf(t, archiveOf("repo-1.0/")),
		"without a folder": gzipped(t, tarOf(t, archiveOf("./"))),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			w := fromRepo(map[string]string{"clone": "https://ignored.example/x", "download": r.store.put(b)})
			for range 2 {
				assert.Equal(t, "bash archived", string(r.answer(w, "1").Body))
			}
			assert.EqualValues(t, 1, r.store.calls.Load())
		})
	}
}

// Nothing of an archive gets out of its folder, and a broken one is never a hit.
func TestAnArchiveThatIsRefused(t *testing.T) {
	t.Parallel()
	whole := gzipped(t, tarOf(t, archiveOf("repo/")))
	good := archiveOf("repo/")
	for want, b := range map[string][]byte{
		`"../evil" points outside`:         tarOf(t, append(good, entry{name: "../evil"})),
		`"/tmp/evil" points outside`:       tarOf(t, append(good, entry{name: "/tmp/evil"})),
		`"a/../../evil" points outside`:    zipOf(t, append(good, entry{name: "a/../../evil"})),
		`the link "repo/l" points outside`: tarOf(t, append(good, entry{name: "repo/l", link: "../../x"})),
		`the link "l" points outside`:      zipOf(t, append(good, entry{name: "l", link: "/etc"})),
		"unexpected EOF":                   whole[:len(whole)-20],
		"unpack http://127.0.0.1":          []byte("<html>not found, politely</html>" + strings.Repeat(" ", 600)),
		"it is not an archive":             {},
		"its list of entries":              longList(),
	} {
		r := newRig(t, func(c *cgi.Config) { c.Grace = 0 })
		resp := r.call(t.Context(), fromRepo(map[string]string{"download": r.store.put(b)}), "1")
		assert.Equal(t, task.Failed, resp.Code, want)
		assert.Contains(t, resp.Error, want)
		entries, err := os.ReadDir(r.cache)
		require.NoError(t, err)
		assert.Len(t, entries, 1, "only the lock: %s", want)
	}
}

// longList is a zip of folders that takes some memory to be listed, whatever count it
// tells.
func longList() []byte {
	const entries = 800_000
	entry := append([]byte("PK\x01\x02"), make([]byte, 44)...)
	entry[28] = 2 // the length of its name
	copy(entry[46:], "d/")
	b := append([]byte("PK\x03\x04"), make([]byte, 26)...)
	at := len(b)
	b = append(b, bytes.Repeat(entry, entries)...)
	end := append([]byte("PK\x05\x06"), make([]byte, 18)...)
	for i := 8; i < 12; i += 2 {
		binary.LittleEndian.PutUint16(end[i:], entries%(1<<16))
	}
	binary.LittleEndian.PutUint32(end[12:], entries*48)
	binary.LittleEndian.PutUint32(end[16:], uint32(at))
	return append(b, end...)
}
