package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/logger"
)

// Rule L1: with ENABLE_REMOTE_LOGGING the log goes to the address in OpenTelemetry's variables. The test is not
// parallel, because it sets environment variables of the process.
func TestTheLogGoesToACollectorWhenWanted(t *testing.T) {
	got := make(chan string, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + string(body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)

	none, closeNone, err := openRemote(t.Context(), config{})
	require.NoError(t, err)
	assert.Nil(t, none)
	require.NoError(t, closeNone())

	remote, closeRemote, err := openRemote(t.Context(), config{LogRemote: true, AccountID: "fake-account", Name: "build-7"})
	require.NoError(t, err)
	log, _, err := logger.New(logger.Config{Output: io.Discard, Export: remote})
	require.NoError(t, err)
	log.Info().Msg("hello from afar")
	require.NoError(t, closeRemote())
	request := <-got
	for _, part := range []string{"/v1/logs", "hello from afar", "fake-account", "build-7"} {
		assert.Contains(t, request, part)
	}
}
