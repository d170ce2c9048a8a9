package source

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task"
)

const fakePassword = "visibly-fake-password-of-a-test"

// gitServer serves the repositories of a directory over HTTPS, with git's own server program.
type gitServer struct {
	*httptest.Server

	dir      string
	requests atomic.Int64
	conns    atomic.Int64

	mu    sync.Mutex
	first func(http.ResponseWriter, *http.Request) bool // reports whether it has answered
}

func newGitServer(t testing.TB) *gitServer {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		testbed.Unavailable(t, "git", "there is none")
	}
	s := &gitServer{dir: t.TempDir()}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), Root: "/",
		Env: []string{
			"GIT_PROJECT_ROOT=" + s.dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		},
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		s.mu.Lock()
		first := s.first
		s.mu.Unlock()
		if first != nil && first(w, r) {
			return
		}
		if _, password, _ := r.BasicAuth(); password != fakePassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *gitServer) before(first func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first = first
}

// sources returns a Sources that trusts the server.
func (s *gitServer) sources(t testing.TB) *Sources {
	t.Helper()
	transport := s.Client().Transport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	out := New(Config{Transport: transport})
	t.Cleanup(func() {
		out.Close()
		transport.CloseIdleConnections()
	})
	return out
}

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{
		"-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "init.defaultBranch=main", "-c", "safe.directory=*",
	}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// repo makes a repository with a commit on main, and returns its directory.
func repo(t testing.TB, dir string, flags ...string) string {
	t.Helper()
	git(t, filepath.Dir(dir), append(append([]string{"init", "-q"}, flags...), dir)...)
	commit(t, dir, "first")
	return dir
}

func commit(t testing.TB, dir, text string) string {
	t.Helper()
	git(t, dir, "commit", "-q", "--allow-empty", "-m", text)
	return git(t, dir, "rev-parse", "HEAD")
}

// watched is a perpetual task, as a manager keeps it.
type watched struct {
	t       testing.TB
	handler task.Perpetual
	config  json.RawMessage
	state   json.RawMessage
}

func watch(t testing.TB, s *Sources, kind string, config any) *watched {
	t.Helper()
	data, err := json.Marshal(config)
	require.NoError(t, err)
	return &watched{t: t, handler: s.Handlers()[kind], config: data}
}

func (w *watched) with(config any) {
	data, err := json.Marshal(config)
	require.NoError(w.t, err)
	w.config = data
}

func (w *watched) try(ctx context.Context) ([]json.RawMessage, error) {
	result, err := w.handler.RunPerpetual(ctx, &task.PerpetualRun{ID: "w", Config: w.config, State: w.state})
	if err != nil {
		return nil, err
	}
	require.NoError(w.t, result.Check())
	w.state = result.State
	return result.Events, nil
}

// poll does a run, and returns its events.
func poll[E any](w *watched) []E {
	w.t.Helper()
	events, err := w.try(w.t.Context())
	require.NoError(w.t, err)
	out := []E{}
	for _, data := range events {
		var e E
		require.NoError(w.t, json.Unmarshal(data, &e))
		out = append(out, e)
	}
	return out
}

// update changes refs with git update-ref.
func update(t testing.TB, dir, commands string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "update-ref", "--stdin")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(commands)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// newStandIn serves plain HTTP, and returns the host.
func newStandIn(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// htpasswd returns a line for the user reader.
func htpasswd(t testing.TB) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(fakePassword), bcrypt.MinCost)
	require.NoError(t, err)
	return "reader:" + string(hash) + "\n"
}
