package endtoend_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

// rig is a bundled manager and a bundled delegate, with a proxy in front of the manager. The
// log service can be taken away in the proxy.
type rig struct {
	programs
	dir      string
	address  string   // of the manager itself
	serve    []string // arguments of the manager
	roots    *x509.CertPool
	logsAway atomic.Bool
	cable    *cable // see rigConfig.cable
}

// rigConfig is the configuration of a rig. The zero value is one without TLS.
type rigConfig struct {
	cert, key  string         // files of the manager
	roots      *x509.CertPool // of its authority
	directLogs bool           // delegates send logs to the manager itself, and not through the proxy
	mortal     bool           // the test starts the programs itself, with rig.mortals
	settings   []string       // further settings of the delegate
	release    string         // version of the delegate, if it is a release
	cable      bool           // the delegate reaches the manager, also for logs, through rig.cable
}

// newRig builds both programs and starts the manager.
func newRig(t *testing.T, c rigConfig) *rig {
	t.Helper()
	s := &rig{dir: t.TempDir(), roots: c.roots}
	testbed.Keep(t, s.dir) // processes of steps survive a delegate
	flags := map[string][]string{}
	if c.release != "" {
		flags["delegate"] = []string{"-ldflags=-s -w -X github.com/delegate-io/dlite/examples/internal/program.release=" + c.release}
	}
	for _, name := range []string{"manager", "delegate"} {
		require.NoError(t, os.Rename(testbed.BuildStatic(t, "./examples/"+name, flags[name]...), filepath.Join(s.dir, name)))
	}
	secret := "00c0ffee00c0ffee" + randomHex()
	settings := filepath.Join(s.dir, "manager.env")
	require.NoError(t, os.WriteFile(settings, []byte("ACCOUNTS=acc="+secret+"\n"), 0o600))
	listen := "127.0.0.1:" + freePort(t)
	args := []string{"server", "--listen", listen, "--http-bind", "off", "--data-dir", filepath.Join(s.dir, "data"), "--env-file", settings}
	s.address = "http://" + listen
	if c.cert != "" {
		s.address = "https://" + listen
		args = append(args, "--tls-cert-file", c.cert, "--tls-key-file", c.key)
	}
	s.url = s.startFront(t, c.roots)
	manager := s.address // of the delegate
	if c.cable {
		s.cable = newCable(t, listen)
		manager = strings.Replace(s.address, listen, s.cable.address(), 1)
		args = append(args, "--public-url", manager)
	} else if c.directLogs {
		args = append(args, "--public-url", s.address)
	} else {
		args = append(args, "--public-url", s.url)
	}
	if s.serve = args; !c.mortal {
		s.startManager(t, args)
	}
	token, err := exec.CommandContext(t.Context(), filepath.Join(s.dir, "manager"), "token", "acc", "--for", "24h", "--env-file", settings).Output()
	require.NoError(t, err)
	s.account, s.token = "acc", strings.TrimSpace(string(token))
	require.NoError(t, os.WriteFile(s.config(), fmt.Appendf(nil,
		"ACCOUNT_ID=acc\nTOKEN=%s\nURL=%s\nNAME=rig\nLOG_LEVEL=info\nHTTP_BIND=off\nWORK_DIR=%s\nLEDGER_DIR=%s\n%s\n",
		secret, manager, filepath.Join(s.dir, "work"), filepath.Join(s.dir, "ledger"), strings.Join(c.settings, "\n")), 0o600))
	return s
}

// config returns the file with the settings of the delegate.
func (s *rig) config() string { return filepath.Join(s.dir, "delegate.env") }

func (s *rig) startManager(t *testing.T, args []string) {
	t.Helper()
	m := program(t, filepath.Join(s.dir, "manager"), args...)
	r, w := io.Pipe()
	m.Stdout = w
	begin(t, m, func() { _ = w.Close() })
	lines := bufio.NewScanner(r)
	require.True(t, lines.Scan(), "the manager does not start")
	go func() { _, _ = io.Copy(io.Discard, r) }()
}

// startFront starts the proxy and returns its URL.
func (s *rig) startFront(t *testing.T, roots *x509.CertPool) string {
	t.Helper()
	target, err := url.Parse(s.address)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	proxy.Transport = transport
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.logsAway.Load() && !strings.HasPrefix(r.URL.Path, "/api/") {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.Close()
		transport.CloseIdleConnections()
	})
	return front.URL
}

// startDelegate starts the delegate. The result kills it, or ends it at the end of the test.
func (s *rig) startDelegate(t *testing.T) (kill func()) {
	t.Helper()
	d := program(t, filepath.Join(s.dir, "delegate"), "server", "--env-file", s.config())
	var log strings.Builder
	d.Stderr = &log
	require.NoError(t, d.Start())
	killed := false
	t.Cleanup(func() {
		if !killed {
			assert.NoError(t, d.Process.Signal(os.Interrupt))
			late := time.AfterFunc(time.Minute, func() { _ = d.Process.Kill() })
			assert.NoError(t, d.Wait())
			late.Stop()
		}
		t.Logf("the delegate said:\n%s", log.String())
	})
	return func() {
		killed = true
		require.NoError(t, d.Process.Kill())
		require.Error(t, d.Wait())
	}
}

// awaitLog waits until a log is archived, and returns its text.
func (s *rig) awaitLog(t *testing.T, key string) string {
	t.Helper()
	path := s.url + "/blob?accountID=acc&key=" + url.QueryEscape(key)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		require.NoError(t, err)
		req.Header.Set("X-Harness-Token", s.token)
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	}, 3*time.Minute, 200*time.Millisecond, "the log does not arrive")
	return s.log(t, key)
}
