package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
)

const fakeAccountSecret = "00000000000000000000000000000001"

// runCheck checks a settings file and returns the output and the error.
func runCheck(t *testing.T, settings string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.env")
	settings += "WORK_DIR=" + dir + "/work\nLEDGER_DIR=" + dir + "/ledger\nDOCKER_HOST=unix:///no/such/engine.sock\n"
	require.NoError(t, os.WriteFile(file, []byte(settings), 0o600))
	var out bytes.Buffer
	err := check(t.Context(), &out, file, nil)
	return out.String(), err
}

// Rule X2: the check prints for each part that it is ok, or what to do. It registers no delegate and shows no
// secret.
func TestTheCheckAdvisesOnEachPart(t *testing.T) {
	t.Parallel()
	m, err := manager.New(manager.Config{Accounts: map[string]string{"a": fakeAccountSecret}})
	require.NoError(t, err)
	srv := httptest.NewServer(m)
	t.Cleanup(func() {
		srv.Close()
		assert.NoError(t, m.Close())
	})
	out, err := runCheck(t, "ACCOUNT_ID=a\nTOKEN="+fakeAccountSecret+"\nURL="+srv.URL+"\n")
	require.NoError(t, err, out)
	assert.Contains(t, out, "ok       settings       account a")
	assert.Contains(t, out, "ok       manager        "+srv.URL+" accepts the token of account a")
	assert.Contains(t, out, "ok       clock          0s off the manager's")
	assert.Contains(t, out, "warning  engine         steps with an image will fail: start a Docker engine")
	assert.Contains(t, out, "ok       disk           WORK_DIR: ")
	assert.Contains(t, out, " control groups ")
	assert.Empty(t, m.Delegates("a"), "a check registers nothing")

	out, err = runCheck(t, "ACCOUNT_ID=a\nTOKEN="+strings.Repeat("0", 32)+"\nURL="+srv.URL+"\n")
	require.EqualError(t, err, "1 of the checks failed")
	assert.Contains(t, out, "FAILED   manager        "+srv.URL+" refuses the token: check ACCOUNT_ID and TOKEN")

	out, err = runCheck(t, "ACCOUNT_ID=a\nTOKEN="+fakeAccountSecret+"\nURL=http://127.0.0.1:1\nCERTS_DIR="+t.TempDir()+"\n")
	require.EqualError(t, err, "2 of the checks failed")
	assert.Contains(t, out, "FAILED   certificates   CERTS_DIR: ")
	assert.Contains(t, out, "FAILED   manager        ")
	assert.Contains(t, out, "warning  clock          cannot be compared")

	out, err = runCheck(t, "ACCOUNT_ID=a\nTOKEN="+secret+"\nMAX_STAGE=3\n")
	require.Error(t, err)
	assert.Contains(t, out, "FAILED   settings ")
	assert.Contains(t, out, "did you mean MAX_STAGES?")
	assert.NotContains(t, out, secret)
}

// Rule X2: a clock that differs from the manager's is a failed check.
func TestTheCheckComparesClocks(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(srv.Close)
	out, err := runCheck(t, "ACCOUNT_ID=a\nTOKEN="+fakeAccountSecret+"\nURL="+srv.URL+"\n")
	require.EqualError(t, err, "1 of the checks failed", out)
	assert.Regexp(t, `FAILED   clock          1h0m\ds off the manager's: synchronise it`, out)
}
