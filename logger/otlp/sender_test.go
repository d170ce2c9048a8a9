package otlp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/delegate-io/dlite/logger/otlp"
)

// Rule L1: records that the collector rejects are not taken for delivered.
func TestRejectedRecordsAreReported(t *testing.T) {
	t.Parallel()
	answer, err := proto.Marshal(&collector.ExportLogsServiceResponse{
		PartialSuccess: &collector.ExportLogsPartialSuccess{RejectedLogRecords: 1, ErrorMessage: "too old"},
	})
	require.NoError(t, err)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) }))
	defer srv.Close()
	e, err := otlp.Open(t.Context(), otlp.Config{Endpoint: srv.URL + "/v1/logs"})
	require.NoError(t, err)
	_, _ = e.Write([]byte(`{"message":"m"}`))
	require.ErrorContains(t, e.Close(t.Context()), "1 log events were not exported: the collector rejected 1: too old")
}

// Rule X2: a wrong variable is named at the start, and no header is shown.
func TestAWrongVariableIsNamed(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":    "collector:4318",
		"OTEL_EXPORTER_OTLP_HEADERS":     "visibly-fake-secret",
		"OTEL_EXPORTER_OTLP_TIMEOUT":     "soon",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "zip",
		"OTEL_EXPORTER_OTLP_CERTIFICATE": "/no/such/file",
		"OTEL_EXPORTER_OTLP_CLIENT_KEY":  "/no/such/file",
		"OTEL_RESOURCE_ATTRIBUTES":       "x",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			_, err := otlp.Open(t.Context(), otlp.Config{})
			require.ErrorContains(t, err, name)
			assert.NotContains(t, err.Error(), "visibly-fake-secret")
		})
	}
}

// The variable of one signal wins over the common one, and is the whole URL.
func TestTheEndpointOfOneSignal(t *testing.T) {
	got := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.URL.Path }))
	defer srv.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", srv.URL+"/of/logs")
	e, err := otlp.Open(t.Context(), otlp.Config{})
	require.NoError(t, err)
	_, _ = e.Write([]byte(`{"message":"m"}`))
	require.NoError(t, e.Close(t.Context()))
	assert.Equal(t, "/of/logs", <-got)
}
