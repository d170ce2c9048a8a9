package otlp_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/delegate-io/dlite/logger/otlp"
)

// The tests below set variables of the process, so none of them is parallel.

// Rule L3: without an endpoint, or switched off, nothing is recorded.
func TestNoEndpointNoTraces(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"no endpoint": {},
		"disabled":    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
		"none":        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range env {
				t.Setenv(k, v)
			}
			tp, closer, err := otlp.Traces(t.Context(), "x", zerolog.Nop())
			require.NoError(t, err)
			_, span := tp.Tracer("t").Start(t.Context(), "s")
			assert.False(t, span.IsRecording())
			require.NoError(t, closer(t.Context()))
		})
	}
}

// Rule L3: spans go out by OTLP over HTTP when the provider is closed, under the
// service's name, which the environment can change.
func TestTracesAreExported(t *testing.T) {
	for want, env := range map[string]string{"delegate": "", "mine": "mine"} {
		t.Run(want, func(t *testing.T) {
			got := make(chan *collector.ExportTraceServiceRequest, 1)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				var in collector.ExportTraceServiceRequest
				assert.NoError(t, proto.Unmarshal(b, &in))
				assert.Equal(t, "/v1/traces", r.URL.Path)
				w.Header().Set("Content-Type", "application/x-protobuf")
				got <- &in
			}))
			defer srv.Close()
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
			t.Setenv("OTEL_SERVICE_NAME", env)
			tp, closer, err := otlp.Traces(t.Context(), "delegate", zerolog.Nop())
			require.NoError(t, err)
			_, span := tp.Tracer("t").Start(t.Context(), "s")
			span.End()
			require.NoError(t, closer(t.Context()))
			in := <-got
			attributes := map[string]string{}
			for _, a := range in.GetResourceSpans()[0].GetResource().GetAttributes() {
				attributes[a.GetKey()] = a.GetValue().GetStringValue()
			}
			assert.Equal(t, want, attributes["service.name"])
			assert.Equal(t, "s", in.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0].GetName())
		})
	}
}

// Rule L3: a collector that refuses is logged and causes no error.
func TestAnExportThatFailsIsLogged(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer srv.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
	var out bytes.Buffer
	tp, closer, err := otlp.Traces(t.Context(), "x", zerolog.New(&out))
	require.NoError(t, err)
	_, span := tp.Tracer("t").Start(context.Background(), "s")
	span.End()
	require.NoError(t, closer(t.Context()))
	assert.Contains(t, out.String(), "could not export traces")
}

// Rule L3: an unsupported protocol is reported at the start.
func TestAnotherProtocolIsRefused(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	_, _, err := otlp.Traces(t.Context(), "x", zerolog.Nop())
	require.ErrorContains(t, err, "it must be http/protobuf")
}
