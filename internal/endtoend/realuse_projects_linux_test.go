package endtoend_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

// forge serves git repositories over HTTP with git's own server program. A client needs the
// password.
type forge struct {
	URL, password string
	dir           string
}

func newForge(t *testing.T) *forge {
	t.Helper()
	return startForge(t, (*httptest.Server).Start)
}

// startForge starts the server of a forge with start.
func startForge(t *testing.T, start func(*httptest.Server)) *forge {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	require.NoError(t, err)
	f := &forge{dir: t.TempDir(), password: "not-a-real-password"}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), Root: "/",
		Env: []string{"GIT_PROJECT_ROOT=" + f.dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"},
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != f.password {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	start(srv)
	t.Cleanup(srv.Close)
	f.URL = srv.URL
	return f
}

// add creates a repository. Its default branch has only a placeholder. Its branch next has a
// copy of a directory, with other repositories of the forge as submodules.
func (f *forge) add(t *testing.T, name, folder string, submodules ...string) {
	t.Helper()
	work := filepath.Join(t.TempDir(), name)
	f.git(t, ".", "init", "-q", work)
	require.NoError(t, os.WriteFile(filepath.Join(work, "NOTHING-YET"), nil, 0o600))
	f.git(t, work, "add", "-A")
	f.git(t, work, "commit", "-q", "-m", "Begin")
	f.git(t, work, "checkout", "-q", "-b", "next")
	require.NoError(t, os.CopyFS(work, os.DirFS(folder)))
	for _, s := range submodules {
		bare := filepath.Join(f.dir, s+".git")
		f.git(t, work, "submodule", "--quiet", "add", "-b", "next", bare, s)
		f.git(t, work, "submodule", "--quiet", "set-url", s, "../"+s+".git")
	}
	f.git(t, work, "add", "-A", "-f")
	f.git(t, work, "commit", "-q", "-m", "Add the sources")
	f.git(t, ".", "clone", "-q", "--bare", work, filepath.Join(f.dir, name+".git"))
	f.git(t, filepath.Join(f.dir, name+".git"), "symbolic-ref", "HEAD", "refs/heads/trunk")
}

func (f *forge) head(t *testing.T, name string) string {
	t.Helper()
	return f.git(t, filepath.Join(f.dir, name+".git"), "rev-parse", "next")
}

// git runs git without the machine's configuration.
func (f *forge) git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{
		"-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "init.defaultBranch=trunk",
		"-c", "protocol.file.allow=always", "-c", "safe.directory=*",
	}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// fetchGo downloads a module and the dependencies of its tests. It returns the module's
// directory in the module cache.
func fetchGo(t *testing.T, module string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir() // not our module, whose requirements must not matter
	out, err := cmd.Output()
	var m struct{ Dir, Error string }
	_ = json.Unmarshal(out, &m) // the output has the reason, also on failure
	if err != nil {
		testbed.Unavailable(t, "modules", "%s cannot be downloaded: %v %s", module, err, m.Error)
	}
	work := t.TempDir()
	require.NoError(t, os.CopyFS(work, os.DirFS(m.Dir)))
	deps := exec.CommandContext(t.Context(), "go", "mod", "download")
	deps.Dir = work
	if out, err := deps.CombinedOutput(); err != nil {
		testbed.Unavailable(t, "modules", "what %s needs cannot be downloaded: %v\n%s", module, err, out)
	}
	return m.Dir
}

// buildTool builds a program of another module that runs in any image of this platform.
func buildTool(t *testing.T, pkg string) string {
	t.Helper()
	dir := filepath.Join(testbed.Cache(t, "realuse"), "bin")
	cmd := exec.CommandContext(t.Context(), "go", "install", "-trimpath", pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		testbed.Unavailable(t, "modules", "%s cannot be built: %v\n%s", pkg, err, out)
	}
	name, _, _ := strings.Cut(pkg, "@")
	return filepath.Join(dir, filepath.Base(name))
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

func needTool(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			testbed.Unavailable(t, name, "there is none")
		}
	}
}

// freePort returns a port on which no process listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// fill reads a file and replaces the names between @ with their values.
func fill(t *testing.T, file string, values ...map[string]string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return regexp.MustCompile(`@[A-Z]+@`).ReplaceAllStringFunc(string(text), func(name string) string {
		for _, v := range values {
			if value, ok := v[strings.Trim(name, "@")]; ok {
				return value
			}
		}
		t.Errorf("%s: there is no value for %s", file, name)
		return name
	})
}

func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}
