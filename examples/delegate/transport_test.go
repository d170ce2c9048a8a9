package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/artifact"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task/stage"
)

// Logs and downloads trust the CA of CERTS_DIR, as the calls to the manager do.
func TestEverythingThatLeavesTheDelegateUsesItsCertificates(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte("program"))
		}
	}))
	t.Cleanup(s.Close)
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600))
	c, err := newClient(config{URL: s.URL, AccountID: "a", Token: "00000000000000000000000000000001", CertsDir: dir}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)

	logs, err := openLogs(config{LedgerDir: t.TempDir(), StepLogs: 1}, outgoing(c), zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, logs.Close(t.Context())) })
	stream := logs.Open(t.Context(), logger.StreamConfig{URL: s.URL, Account: "a", Key: "k", IndirectUpload: true})
	_, err = stream.Write([]byte("line\n"))
	require.NoError(t, err)
	require.NoError(t, stream.Close(t.Context()))

	file, err := artifact.New(t.TempDir(), "program").With(outgoing(c)).
		Fetch(t.Context(), &stage.Executable{URL: s.URL + "/p"}, "", func(string, ...any) {})
	require.NoError(t, err)
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "program", string(got))
}
