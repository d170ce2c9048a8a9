//go:build unix

// Package tasks_test runs the standalone tasks over loopback, as a delegate does.
package tasks_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/driver/cgi"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/router"
	routersecrets "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const password = "visibly-fake-password"

// fixture has the two programs on a server, and the router of a delegate.
type fixture struct {
	t      *testing.T
	router *router.Router
	urls   map[string]string
	sums   map[string]string
	log    *safeText
}

type safeText struct {
	mu sync.Mutex
	b  strings.Builder // guarded by mu
}

func (s *safeText) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeText) Close(context.Context) error { return nil }

func (s *safeText) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{t: t, urls: map[string]string{}, sums: map[string]string{}, log: &safeText{}}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "./connectortest", "./repostatus")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // like all programs of this project
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	srv := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(srv.Close)
	for _, name := range []string{"connectortest", "repostatus"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		sum := sha256.Sum256(b)
		w.urls[name], w.sums[name] = srv.URL+"/"+name, hex.EncodeToString(sum[:])
	}
	h, err := cgi.New(cgi.Config{
		Cache:   filepath.Join(t.TempDir(), "cache"),
		OpenLog: func(context.Context, logger.StreamConfig) logger.TaskLog { return w.log },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	w.router = router.New(nil, router.WithNotFound(h), router.WithMiddleware(routersecrets.Resolve(secrets.ResolverConfig{})))
	return w
}

// run sends a task as a v2 manager does, with its password as a secret task.
func (w *fixture) run(program string, in map[string]string) (status int, out map[string]any) {
	w.t.Helper()
	if in["password"] == password {
		in["password"] = "${{secrets.pw}}"
	}
	data, err := json.Marshal(in)
	require.NoError(w.t, err)
	config, err := json.Marshal(map[string]any{"executable_config": map[string]any{
		"name": program, "version": "1",
		"executables": []map[string]string{{"os": runtime.GOOS, "arch": runtime.GOARCH, "url": w.urls[program], "sha256": w.sums[program]}},
	}})
	require.NoError(w.t, err)
	secret, err := json.Marshal(map[string]any{"secrets": []map[string]string{{"value": password}}})
	require.NoError(w.t, err)
	resp, _ := task.Serve(w.t.Context(), w.router, &task.Task{
		ID: "t", Type: program, Data: data, Config: config,
		Secrets: []*task.Task{{ID: "pw", Type: task.TypeSecretStatic, Data: secret}},
	})
	require.Equal(w.t, task.OK, resp.Code, resp.Error)
	var a cgi.Answer
	require.NoError(w.t, json.Unmarshal(resp.Data, &a))
	require.Equal(w.t, "application/json", a.Headers.Get("Content-Type"))
	require.NoError(w.t, json.Unmarshal(a.Body, &out))
	return a.StatusCode, out
}

// gitServer serves a repository with git's own server program. A client needs the password.
func gitServer(t *testing.T) (url, commit string) {
	t.Helper()
	dir := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = filepath.Join(dir, "app")
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.TrimSpace(string(out))
	}
	for _, name := range []string{"app", "empty"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	git("init", "--quiet", "--initial-branch=trunk")
	git("init", "--quiet", "--initial-branch=trunk", "../empty")
	git("commit", "--quiet", "--allow-empty", "--message=x")
	git("tag", "--annotate", "--message=x", "v1")
	git("branch", "other")
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	require.NoError(t, err)
	backend := &netcgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), Root: "/",
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	srv := httptest.NewServer(locked(backend))
	t.Cleanup(srv.Close)
	return srv.URL, git("rev-parse", "HEAD")
}

// locked refuses requests without the password.
func locked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != "ci" || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// registryServer requires a token of its token service.
func registryServer(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	mux.HandleFunc("GET /v2/{$}", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer visibly-fake-token" {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+srv.URL+`/token?x=1",service="images",scope="a,b"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	mux.Handle("GET /token", locked(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("service") == "images" && r.FormValue("x") == "1" {
			task.WriteJSON(w, map[string]string{"token": "visibly-fake-token"}, 0)
		}
	})))
	return srv.URL
}

func TestConnectorTest(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	git, _ := gitServer(t)
	images := registryServer(t)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	basicRegistry := httptest.NewServer(locked(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	t.Cleanup(basicRegistry.Close)
	openRegistry := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(openRegistry.Close)
	for _, c := range []struct {
		typ, url, password string
		ok                 bool
		message            string
	}{
		{"http", basicRegistry.URL, password, true, "the server answers 200"},
		{"http", basicRegistry.URL, "wrong", false, "the server answers 401"},
		{"http", plain.URL + "/x?token=visibly-fake-query", password, false, "the server answers 404"},
		{"http", "http://127.0.0.1:1/x?token=visibly-fake-query", password, false, "refused"},
		{"http", "ftp://x", password, false, "url must begin"},
		{"git", git + "/app/.git", password, true, "the repository can be read; it has "},
		{"git", git + "/app/.git", "wrong", false, "the credentials are wrong"},
		{"git", git + "/missing/.git", password, false, "was not found"},
		{"git", openRegistry.URL, password, false, "not as a git server does"},
		{"registry", images, password, true, "the registry takes the credentials"},
		{"registry", images, "wrong", false, "does not take the credentials (status 401)"},
		{"registry", basicRegistry.URL + "/", password, true, "the registry takes the credentials"},
		{"registry", basicRegistry.URL, "wrong", false, "does not take the credentials"},
		{"registry", openRegistry.URL, "", true, "it wants no credentials"},
		{"registry", plain.URL, password, false, "not as a registry does"},
	} {
		status, out := w.run("connectortest", map[string]string{"type": c.typ, "url": c.url, "username": map[bool]string{true: "ci"}[c.password != ""], "password": c.password})
		assert.Equal(t, 200, status)
		assert.Equal(t, c.ok, out["ok"], "%+v %v", c, out)
		assert.Contains(t, out["message"], c.message)
		assert.NotContains(t, out["message"], "visibly-fake")
	}
	assert.Contains(t, w.log.String(), "Testing the connector to http://127.0.0.1:1/x\n")
	assert.NotContains(t, w.log.String(), "visibly-fake")
	status, out := w.run("connectortest", map[string]string{"type": "smoke"})
	assert.Equal(t, http.StatusBadGateway, status)
	assert.Equal(t, `type "smoke" is not known; http, git and registry are`, out["error_msg"])
}

func TestRepoStatus(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	url, commit := gitServer(t)
	statusOf := func(repository, ref, pw string) map[string]any {
		status, out := w.run("repostatus", map[string]string{"url": url + repository, "ref": ref, "username": "ci", "password": pw})
		assert.Equal(t, 200, status)
		return out
	}
	for name, ref := range map[string]string{"": "HEAD", "trunk": "refs/heads/trunk", "v1": "refs/tags/v1", "refs/heads/other": "refs/heads/other"} {
		assert.Equal(t, map[string]any{
			"exists": true, "empty": false, "default_branch": "trunk", "ref": ref, "commit": commit, "branches": 2.0, "tags": 1.0,
		}, statusOf("/app/.git", name, password), name)
	}
	assert.Equal(t, `it has no "gone"`, statusOf("/app/.git", "gone", password)["reason"])
	empty := statusOf("/empty/.git", "", password)
	assert.Equal(t, true, empty["empty"])
	assert.Equal(t, true, empty["exists"])
	for _, missing := range []map[string]any{statusOf("/missing/.git", "", password), statusOf("/app/.git", "", "wrong")} {
		assert.Equal(t, false, missing["exists"])
		assert.NotEmpty(t, missing["reason"])
	}
	status, _ := w.run("repostatus", map[string]string{"url": "file:///etc"})
	assert.Equal(t, http.StatusBadGateway, status)
	assert.NotContains(t, w.log.String(), "visibly-fake")
}

// Each program can also be started by hand.
func TestTasksRunFromTheCommandLine(t *testing.T) {
	t.Parallel()
	url, commit := gitServer(t)
	cmd := exec.CommandContext(t.Context(), "go", "run", "./repostatus")
	cmd.Stdin = strings.NewReader(`{"url":"` + url + `/app/.git","username":"ci","password":"` + password + `"}`)
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), commit)
	cmd = exec.CommandContext(t.Context(), "go", "run", "./connectortest")
	cmd.Stdin = strings.NewReader(password)
	out, err = cmd.Output()
	require.Error(t, err)
	assert.JSONEq(t, `{"error_msg":"the data does not have the form that this task wants","code":400}`, string(out))
}
