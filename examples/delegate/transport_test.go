package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/artifact"
	"github.com/delegate-io/dlite/internal/token"
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

// A server that a stage names must not get the delegate's token.
func TestOnlyTheManagersAddressGetsATokenForLogs(t *testing.T) {
	t.Parallel()
	secret, err := token.ParseSecret(fakeAccountSecret)
	require.NoError(t, err)
	cfg := config{URL: "https://manager.example:8443/api/", AccountID: "a", Token: fakeAccountSecret}
	claims, err := secret.Verify(cfg.logToken("https://manager.example:8443/logs"), time.Now())
	require.NoError(t, err)
	require.Equal(t, "a", claims.Account)
	for _, other := range []string{"http://manager.example:8443", "https://manager.example", "https://logs.example:8443", ":", ""} {
		require.Empty(t, cfg.logToken(other), other)
	}
	cfg.Token = "visibly.fake.token.in.parts"
	require.Equal(t, cfg.Token, cfg.logToken("https://manager.example:8443"))
}
