package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/examples/internal/serving"
)

// Rules L3, X3: health is at the API's address and at the metrics' address. The metrics name accounts, so they are
// not at the API's address.
func TestTheManagerIsSeenFromOutside(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	p := start(t, &serverCommand{Options: serving.Options{HTTPBind: addr}, LogsDir: t.TempDir(), storeOptions: storeOptions{OperatorToken: fakeOperatorToken}}, map[string]string{"a": fakeSecret}, nil)
	for _, path := range []string{"/healthz", "/readyz"} {
		status, body := p.call(http.MethodGet, path, "", "Accept", "*/*")
		assert.Equal(t, http.StatusOK, status, body)
		assert.Contains(t, body, `"status":"ok"`)
	}
	_, body := p.call(http.MethodGet, "/metrics", "", "Accept", "*/*")
	assert.NotContains(t, body, "dlite_")

	own := *p
	own.url = "http://" + addr
	for _, path := range []string{"/healthz", "/readyz"} {
		status, body := own.call(http.MethodGet, path, "", "Accept", "*/*")
		assert.Equal(t, http.StatusOK, status, body)
	}
	_, text := p.call(http.MethodGet, "/healthz", "", "Accept", "*/*")
	assert.NotContains(t, text, "account")
	status, body := p.call(http.MethodPost, "/api/tasks?accountId=a", `{"id":"waits","type":"x","selectors":["nobody"]}`,
		"Authorization", "Bearer "+tokenFor(t))
	require.Equal(t, http.StatusAccepted, status, body)
	status, metrics := own.call(http.MethodGet, "/metrics", "", "Accept", "*/*")
	require.Equal(t, http.StatusOK, status, metrics)
	assert.Contains(t, metrics, `dlite_manager_queue_waiting{account="a",kind="task",selectors="nobody"} 1`)
	assert.NotContains(t, metrics, fakeSecret)

	for _, header := range []string{"", "Bearer " + tokenFor(t), "Bearer", "Bearer " + fakeOperatorToken[1:]} {
		status, body = own.call(http.MethodPost, "/pause", "", "Authorization", header)
		assert.Equal(t, http.StatusUnauthorized, status, body)
	}
	for _, path := range []string{"/pause", "/resume"} {
		status, body = own.call(http.MethodPost, path, "", "Authorization", "Bearer "+fakeOperatorToken)
		require.Equal(t, http.StatusNoContent, status, body)
		_, body = p.call(http.MethodGet, "/api/tasks/waits?accountId=a", "", "Authorization", "Bearer "+tokenFor(t))
		assert.Equal(t, path == "/pause", strings.Contains(body, "pause"), body)
	}

	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "observability.md"))
	require.NoError(t, err)
	var table, found []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(dlite_(?:manager|host)_[a-z_]+)`").FindAllStringSubmatch(string(doc), -1) {
		// Only the delegate has the first metric, and only a manager with an update has the second.
		if m[1] != "dlite_manager_contact_timestamp_seconds" && m[1] != "dlite_manager_upgrade_delegates" {
			table = append(table, m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (dlite_\S+)`).FindAllStringSubmatch(metrics, -1) {
		found = append(found, m[1])
	}
	sort.Strings(table)
	assert.Equal(t, table, found, "docs/observability.md has other names than the manager")
}

const fakeOperatorToken = "visibly-fake-operator-token"

// Without the setting, every call of an operator is refused. A page in a browser cannot read the metrics.
func TestThePortOfTheMetricsIsNotOpenToTheMachine(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	p := start(t, &serverCommand{Options: serving.Options{HTTPBind: addr}}, map[string]string{"a": fakeSecret}, nil)
	p.call(http.MethodGet, "/healthz", "", "Accept", "*/*") // now the other port is served too
	p.url = "http://" + addr
	status, body := p.call(http.MethodPost, "/pause", "", "Authorization", "Bearer ")
	assert.Equal(t, http.StatusForbidden, status)
	assert.Contains(t, body, "OPERATOR_TOKEN")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/metrics", nil)
	require.NoError(t, err)
	req.Host = "rebound.example"
	resp, err := p.http.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
}

func tokenFor(t *testing.T) string {
	t.Helper()
	text, err := issue(map[string]string{"a": fakeSecret}, "a", 1<<36, "")
	require.NoError(t, err)
	return text
}
