package telemetry_test

import (
	"bytes"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/logger/telemetry"
)

// value returns the value of a series in the body of a scrape.
func value(t *testing.T, body, series string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(body)
	require.NotNil(t, found, "%s in\n%s", series, body)
	v, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return v
}

// Rule L3: the metrics include those of the host, with the disk of a directory that does
// not exist.
func TestMetricsIncludeTheHost(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(telemetry.Host(filepath.Join(t.TempDir(), "not", "yet")))
	s, err := telemetry.Listen(t.Context(), "127.0.0.1:0", "", telemetry.Handler(registry, nil, nil), zerolog.Nop())
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr().String()+"/metrics", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, s.Close(t.Context()))

	body := string(b)
	for _, pair := range [][2]string{
		{"dlite_host_memory_bytes", "dlite_host_memory_available_bytes"},
		{"dlite_host_disk_bytes", "dlite_host_disk_available_bytes"},
	} {
		total, free := value(t, body, pair[0]), value(t, body, pair[1])
		assert.Positive(t, free)
		assert.Greater(t, total, free)
	}
	assert.Positive(t, value(t, body, `dlite_host_cpu_seconds_total{mode="busy"}`))
	assert.Positive(t, value(t, body, `dlite_host_cpu_seconds_total{mode="idle"}`))
}

// Rule L3: if the default port is in use, Listen logs a warning. If a configured
// port is in use, it returns an error. The setting off disables the server.
func TestAPortThatIsTaken(t *testing.T) {
	t.Parallel()
	h := http.NotFoundHandler()
	first, err := telemetry.Listen(t.Context(), "127.0.0.1:0", "", h, zerolog.Nop())
	require.NoError(t, err)
	defer func() { assert.NoError(t, first.Close(t.Context())) }()
	taken := first.Addr().String()
	var out bytes.Buffer
	log := zerolog.New(&out)

	s, err := telemetry.Listen(t.Context(), "", taken, h, log)
	require.NoError(t, err)
	assert.Nil(t, s)
	assert.Contains(t, out.String(), `"level":"warn"`)
	require.NoError(t, s.Close(t.Context()), "nil can be closed")

	_, err = telemetry.Listen(t.Context(), taken, "127.0.0.1:0", h, log)
	require.ErrorContains(t, err, "listening for metrics and health")

	out.Reset()
	s, err = telemetry.Listen(t.Context(), "off", "127.0.0.1:0", h, log)
	require.NoError(t, err)
	assert.Nil(t, s)
	assert.Empty(t, out.String())
}
