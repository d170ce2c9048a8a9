package connector

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/delegate-io/dlite/internal/testbed"
)

// Git over HTTPS is tested with git http-backend, with reads and writes (rule G3).
func TestGitOverHTTPS(t *testing.T) {
	t.Parallel()
	repo := newRepository(t)
	path, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	require.NoError(t, err)
	ca := newAuthority(t, "The CA of a test")
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"), Env: []string{
		"GIT_PROJECT_ROOT=" + filepath.Dir(repo), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}}
	s := ca.serve(&x509.Certificate{}, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case password != fakeToken:
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Query().Get("service") == "git-receive-pack" && user != "writer":
			w.WriteHeader(http.StatusForbidden)
		default:
			r.Header.Set("Remote-User", user)
			own := *backend
			own.Env = append(own.Env, "REMOTE_USER="+user)
			own.ServeHTTP(w, r)
		}
	})
	with := func(password string, options ...string) connector {
		c := connector{Kind: kindGit, Address: s.URL + "/", Secrets: map[string]string{secretToken: password}, Options: map[string]string{optionCA: ca.pem}}
		for i := 0; i < len(options); i += 2 {
			c.Options[options[i]] = options[i+1]
		}
		return c
	}
	assert.Equal(t, "connection tls authentication permission", steps(t, try(t, with(fakeToken, optionRepository, "app.git"))))
	assert.True(t, try(t, with(fakeToken, optionRepository, "app.git", optionAccess, "write", optionUsername, "writer")).OK)
	for want, c := range map[string]connector{
		"permission: 127.0.0.1 accepts the token but does not permit the repository app.git (403)": with(fakeToken, optionRepository, "app.git", optionAccess, "write"),
		"permission: 127.0.0.1 does not know the repository other.git":                             with(fakeToken, optionRepository, "other.git"),
		"authentication: 127.0.0.1 rejects the token (401)":                                        with("visibly-another-token", optionRepository, "app.git"),
		"authentication: 127.0.0.1 requires credentials (401)":                                     {Kind: kindGit, Address: s.URL, Options: map[string]string{optionCA: ca.pem}},
	} {
		f := failed(t, try(t, c))
		_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
		assert.Contains(t, f.Name+": "+strings.ReplaceAll(f.Message, ":"+port, ""), want)
	}
	// A web server that is no Git server.
	f := failed(t, try(t, connector{Kind: kindGit, Address: serveHTTP(t, ok).URL}))
	assert.Contains(t, f.Message, "but not as a Git server")
}

// newRegistry starts a real registry whose data is in dir. With users it requires a user "reader".
func newRegistry(t *testing.T, dir string, users bool) string {
	t.Helper()
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		testbed.Unavailable(t, "registry", "package docker-registry is missing")
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	settings := t.TempDir()
	auth := ""
	if users {
		hash, err := bcrypt.GenerateFromPassword([]byte(fakeToken), bcrypt.MinCost)
		require.NoError(t, err)
		file := filepath.Join(settings, "users")
		require.NoError(t, os.WriteFile(file, []byte("reader:"+string(hash)+"\n"), 0o600))
		auth = "auth: {htpasswd: {realm: test, path: " + file + "}}\n"
	}
	file := filepath.Join(settings, "config.yml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: %q}\n%s", dir, address, auth), 0o600))
	cmd := exec.Command(program, "serve", file) //nolint:noctx // the cleanup ends it
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		return err == nil && conn.Close() == nil
	}, time.Minute, 10*time.Millisecond)
	return "http://" + address
}

// Registries with the scheme Basic are tested with a real registry (rule G3).
func TestARealRegistry(t *testing.T) {
	t.Parallel()
	address := newRegistry(t, t.TempDir(), true)
	with := func(password string, options ...string) connector {
		c := connector{Kind: kindRegistry, Address: address, Secrets: map[string]string{secretPassword: password}, Options: map[string]string{optionUsername: "reader"}}
		for i := 0; i < len(options); i += 2 {
			c.Options[options[i]] = options[i+1]
		}
		return c
	}
	assert.Equal(t, "connection authentication", steps(t, try(t, with(fakeToken))))
	assert.Equal(t, "connection authentication permission", steps(t, try(t, with(fakeToken, optionRepository, "team/new", optionAccess, "write"))))
	f := failed(t, try(t, with("visibly-another-password")))
	assert.Equal(t, stepAuthentication, f.Name)
	assert.Contains(t, f.Message, "rejects the password of reader (401)")
	f = failed(t, try(t, with(fakeToken, optionRepository, "team/new")))
	assert.Equal(t, stepPermission, f.Name)
	assert.Contains(t, f.Message, "does not know the repository team/new")
	f = failed(t, try(t, connector{Kind: kindHarbor, Address: address}))
	assert.Contains(t, f.Message, "requires credentials (401)")

	open := newRegistry(t, t.TempDir(), false)
	assert.True(t, try(t, connector{Kind: kindRegistry, Address: open}).OK)
	f = failed(t, try(t, connector{Kind: kindRegistry, Address: serveHTTP(t, http.NotFound).URL}))
	assert.Contains(t, f.Message, "but not as a registry (404)")
}

// Vault is tested with a real one (rule G3).
func TestARealVault(t *testing.T) {
	t.Parallel()
	v := testbed.Vault(t)
	with := func(token string, options ...string) connector {
		c := connector{Kind: kindVault, Address: v.Address, Secrets: map[string]string{secretToken: token}, Options: map[string]string{}}
		for i := 0; i < len(options); i += 2 {
			c.Options[options[i]] = options[i+1]
		}
		return c
	}
	r := try(t, with(v.Token, optionPath, "secret/data/ci"))
	assert.Equal(t, "connection answer authentication permission", steps(t, r))
	assert.Contains(t, r.Steps[2].Message, "root")
	f := failed(t, try(t, with("visibly-another-token")))
	assert.Equal(t, stepAuthentication, f.Name)
	assert.Contains(t, f.Message, "rejects the token (403)")
	auth, _ := v.Do(t, http.MethodPost, "auth/token/create", map[string]any{"policies": []string{"default"}})["auth"].(map[string]any)
	weak, _ := auth["client_token"].(string)
	f = failed(t, try(t, with(weak, optionPath, "secret/data/ci")))
	assert.Equal(t, stepPermission, f.Name)
	assert.Contains(t, f.Message, "do not permit read at secret/data/ci")
	v.Do(t, http.MethodPost, "sys/auth/approle", map[string]any{"type": "approle"})
	f = failed(t, try(t, connector{Kind: kindVault, Address: v.Address, Secrets: map[string]string{secretUsername: "visibly-fake-role", secretPassword: "visibly-fake-id"}}))
	assert.Equal(t, stepAuthentication, f.Name)
	assert.Contains(t, f.Message, "rejects the AppRole (400)")
	f = failed(t, try(t, connector{Kind: kindVault, Address: serveHTTP(t, ok).URL, Secrets: map[string]string{secretToken: fakeToken}}))
	assert.Contains(t, f.Message, "but not as a Vault")
}
