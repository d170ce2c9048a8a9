package main

import (
	"bufio"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager"
)

const (
	fakeSecret  = "00000000000000000000000000000001"
	otherSecret = "00000000000000000000000000000002"
)

// tlsManager serves a manager with TLS, and returns its address and a folder with its authority.
func tlsManager(t *testing.T) (m *manager.Manager, url, certs string) {
	t.Helper()
	m, err := manager.New(manager.Config{Accounts: map[string]string{"a": fakeSecret}})
	require.NoError(t, err)
	server := httptest.NewTLSServer(m)
	t.Cleanup(func() {
		assert.NoError(t, m.Close())
		server.Close()
	})
	certs = t.TempDir()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(filepath.Join(certs, "ca.pem"), text, 0o600))
	return m, server.URL, certs
}

func envFile(t *testing.T, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pipelines.env")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return file
}

// A wrong setting is an error that names the setting, before the service takes a port, and shows no secret.
func TestTheServerNamesAWrongSetting(t *testing.T) {
	t.Parallel()
	_, url, certs := tlsManager(t)
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	accounts, database := "ACCOUNTS=a="+fakeSecret, "PIPELINES_DATABASE="+filepath.Join(t.TempDir(), "runs.db")
	for want, lines := range map[string][]string{
		"MANAGER_URL is missing":                      {accounts, database},
		"MANAGER_URL: the address of the manager":     {accounts, database, "MANAGER_URL=" + url + ",manager:3460"},
		"ACCOUNTS is missing":                         {database, "MANAGER_URL=" + url},
		"ACCOUNTS: the secret of \"a\"":               {"ACCOUNTS=a=" + otherSecret + "x", database, "MANAGER_URL=" + url},
		"compare the account id and the secret":       {"ACCOUNTS=a=" + otherSecret, database, "MANAGER_URL=" + url, "CERTS_DIR=" + certs},
		"PIPELINES_DATABASE is missing":               {accounts, "MANAGER_URL=" + url},
		"PIPELINES_DATABASE: the URL must begin":      {accounts, "MANAGER_URL=" + url, "PIPELINES_DATABASE=mysql://fake:" + otherSecret + "@db/runs"},
		"STORE_KEY is too short":                      {accounts, database, "MANAGER_URL=" + url, "STORE_KEY=short"},
		"CERTS_DIR":                                   {accounts, database, "MANAGER_URL=" + url, "CERTS_DIR=" + certs + "/none"},
		"CLIENT_CERT_FILE and CLIENT_KEY_FILE":        {accounts, database, "MANAGER_URL=" + url, "CLIENT_KEY_FILE=key.pem"},
		"PIPELINES_SETTINGS: open":                    {accounts, database, "MANAGER_URL=" + url, "PIPELINES_SETTINGS=none.yaml"},
		"PIPELINES_RETENTION":                         {accounts, database, "MANAGER_URL=" + url, "PIPELINES_RETENTION=-1h"},
		"unknown setting MANAGER_URLS: did you":       {"MANAGER_URLS=" + url},
		"LISTEN: listen tcp " + taken.Addr().String(): {accounts, database, "MANAGER_URL=" + url, "CERTS_DIR=" + certs},
	} {
		code, out := execute(t, "server", "--listen", taken.Addr().String(), "--http-bind", "off", "--env-file", envFile(t, lines...))
		assert.Positive(t, code, want)
		assert.Contains(t, out, want)
		assert.NotContains(t, out, otherSecret)
	}
}

// The process serves runs of the manager behind TLS, has its own port for metrics, and ends in order.
func TestTheServerRunsPipelinesBesideItsManager(t *testing.T) {
	t.Parallel()
	m, url, certs := tlsManager(t)
	file := envFile(t, "ACCOUNTS=a="+fakeSecret, "PIPELINES_DATABASE="+filepath.Join(t.TempDir(), "runs.db"),
		"MANAGER_URL=https://127.0.0.1:1,"+url, "CERTS_DIR="+certs)
	metrics := freeAddress(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "server", "--listen", "127.0.0.1:0", "--http-bind", metrics, "--env-file", file)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var log strings.Builder
	cmd.Stderr = &log
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan())
	base, ok := strings.CutPrefix(lines.Text(), "serving at ")
	require.True(t, ok, lines.Text())

	body, err := json.Marshal(map[string]string{"id": "r", "yaml": pipelineOf(step("a", "command: echo"))})
	require.NoError(t, err)
	status, answer := call(t, http.MethodPost, base+"/api/runs?accountId=a", string(body), "")
	assert.Equal(t, http.StatusUnauthorized, status, answer)
	secret, err := token.ParseSecret(fakeSecret)
	require.NoError(t, err)
	bearer, err := secret.Issue("a", time.Now(), time.Hour)
	require.NoError(t, err)
	status, answer = call(t, http.MethodPost, base+"/api/runs?accountId=a", string(body), bearer)
	require.Equal(t, http.StatusAccepted, status, answer)
	for feed := m.Events("a", 0); len(feed.Events) == 0; feed = m.Events("a", 0) {
		<-feed.Changed // the service opens the stage
	}
	assert.Equal(t, "r.only", m.Stages("a")[0].ID)
	status, answer = call(t, http.MethodPost, base+"/api/runs/r/abort?accountId=a", "", bearer)
	require.Equal(t, http.StatusOK, status, answer)
	_, answer = call(t, http.MethodGet, base+"/api/runs/r?accountId=a&wait=30", "", bearer)
	assert.Contains(t, answer, `"status":"ABORTED"`)
	_, answer = call(t, http.MethodGet, "http://"+metrics+"/metrics", "", "")
	assert.Contains(t, answer, `dlite_pipelines_runs_ended_total{account="a",status="ABORTED"} 1`)
	assert.Contains(t, answer, `dlite_pipelines_runs_started_total{account="a"} 1`)
	for _, page := range []string{base + "/readyz", "http://" + metrics + "/healthz"} {
		status, answer = call(t, http.MethodGet, page, "", "")
		assert.Equal(t, http.StatusOK, status, answer)
	}
	// A stream that lasts as long as its run does not keep the process from its end.
	status, answer = call(t, http.MethodPost, base+"/api/runs?accountId=a", strings.Replace(string(body), `"r"`, `"waits"`, 1), bearer)
	require.Equal(t, http.StatusAccepted, status, answer)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/runs/waits/events?accountId=a", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+bearer)
	stream, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	defer func() { _ = stream.Body.Close() }()
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_, _ = io.Copy(io.Discard, stdout)
	require.NoError(t, cmd.Wait(), log.String())
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func call(t *testing.T, method, url, body, bearer string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if !assert.NoError(t, err) {
		return 0, fmt.Sprint(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	assert.NoError(t, err)
	return resp.StatusCode, string(b)
}
