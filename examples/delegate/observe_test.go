package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task/stage"
)

// freeAddress returns an address that no process uses at the moment.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // no client has connected
	return l.Addr().String()
}

// fetch requests url until the answer has the status. With 0 any status is accepted.
func fetch(t *testing.T, url string, status int) string {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	hc := &http.Client{Transport: transport}
	late := time.After(30 * time.Second)
	for {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		if resp, err := hc.Do(req); err == nil {
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			if status == 0 || resp.StatusCode == status {
				return string(b)
			}
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-late:
			require.FailNow(t, "no such answer", "%s with %d", url, status)
		}
	}
}

// Rules L3, X2: the bundled delegate serves metrics and health. A drain ends readiness at once. No output shows the
// content of a stage.
func TestTheDelegateIsSeenFromOutside(t *testing.T) {
	t.Parallel()
	addr := freeAddress(t)
	r := start(t, "MAX_STAGES=2\nHTTP_BIND="+addr+"\n")
	base := "http://" + addr
	fetch(t, base+"/readyz", http.StatusOK)
	fetch(t, base+"/healthz", http.StatusOK)
	r.init("tx")
	step := script("tx", "one", "echo "+secret)
	step.Secrets = []string{secret}
	ran := answer[stage.ExecuteResponse](r, r.submit("CI_DOCKER_EXECUTE_TASK", step))
	require.Equal(t, stage.Success, ran.Status, ran.ErrorMessage)

	body := fetch(t, base+"/metrics", http.StatusOK)
	for _, want := range []string{
		"dlite_transactions_open 1", "dlite_slots 2", "dlite_slots_used 1", "dlite_slots_free 1",
		`dlite_task_duration_seconds_count{code="OK",type="CI_DOCKER_EXECUTE_TASK"} 1`,
		`dlite_task_duration_seconds_count{code="FAILED",type="local_cleanup"} 0`,
		"dlite_log_bytes_total 7\n",
	} {
		assert.Contains(t, body, want)
	}
	assert.NotContains(t, body, secret)

	r.drain() // the stage is open, so the drain waits for it
	reason := fetch(t, base+"/readyz", http.StatusServiceUnavailable)
	assert.Contains(t, reason, "draining: no new stages are taken")
	fetch(t, base+"/healthz", http.StatusOK)
	answer[stage.CleanupResponse](r, r.cleanup("tx"))
	require.NoError(t, r.wait())
	documented(t, body)
}

// documented compares the names of metrics with the table of the documentation.
func documented(t *testing.T, scraped string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "observability.md"))
	require.NoError(t, err)
	var table, found []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(dlite_[a-z_]+)`").FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(m[1], "dlite_vm_") || strings.HasPrefix(m[1], "dlite_pipelines_") {
			continue // this delegate has no pools and no pipelines
		}
		if !strings.HasPrefix(m[1], "dlite_manager_") || m[1] == "dlite_manager_contact_timestamp_seconds" {
			table = append(table, m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (dlite_\S+)`).FindAllStringSubmatch(scraped, -1) {
		found = append(found, m[1])
	}
	sort.Strings(table)
	assert.Equal(t, table, found, "docs/observability.md has other names than the delegate")
}

// Rules L3, X2: a configured address that is in use ends the start. A warning names an OpenTelemetry variable in the
// file.
func TestSettingsOfMetricsAndTraces(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // no client has connected
	c, warnings, err := load(t, required+"HTTP_BIND="+l.Addr().String()+"\nLOG_LEVEL=error\nOTEL_SERVICE_NAME=x\n")
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "the delegate reads OTEL_SERVICE_NAME from the environment alone")
	c.LedgerDir = t.TempDir()
	require.ErrorContains(t, serve(context.Background(), c, nil), "listening for metrics and health")
}
