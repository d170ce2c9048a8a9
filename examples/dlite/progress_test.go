package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/examples/internal/machine"
)

// largeLogs is a manager that has one stage, with a log of 20 MB, and accepts any submission.
func largeLogs(t *testing.T) string {
	t.Helper()
	line := []byte(`{"out":"` + strings.Repeat("x", 999_970) + `\n"}` + "\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/blob":
			for range 20 {
				_, _ = w.Write(line)
			}
		case r.Method == http.MethodPost:
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"id":"large","status":"QUEUED"}`)
		case strings.HasPrefix(r.URL.Path, "/api/stages/"):
			_, _ = io.WriteString(w, `{"id":"large","status":"SUCCESS","steps":[{"id":"a","status":"SUCCESS","log_key":"large/a","started_at":"2026-01-01T00:00:00Z","ended_at":"2026-01-01T00:00:01Z"}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error_msg":"unknown"}`)
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL
}

func TestLargeTransfersShowTheirProgress(t *testing.T) {
	t.Parallel()
	url := largeLogs(t)
	s := &site{dir: t.TempDir()}
	env := s.environment("DLITE_URL="+url, "DLITE_ACCOUNT="+machine.Account, "DLITE_TOKEN=fake")
	large := `{"name":"large","steps":[{"id":"a","data":{"run":{"entrypoint":["true"],"commands":["` + strings.Repeat("x", 18_000_000) + `"]}}}]}`
	require.NoError(t, os.WriteFile(s.dir+"/large.json", []byte(large), 0o600))

	code, out, errs := s.exec(t, env, "", "logs", "stage/large", "--step", "a")
	assert.Equal(t, exitOK, code, errs)
	assert.Greater(t, len(out), 19_000_000)
	assert.Equal(t, 2, strings.Count(errs, "received "), "lines without a terminal: %s", errs)
	assert.NotContains(t, errs, "\x1b")
	code, _, errs = s.exec(t, env, "", "submit", "large.json")
	assert.Equal(t, exitOK, code, errs)
	assert.Equal(t, 2, strings.Count(errs, "sent "), errs)
	assert.Contains(t, errs, " of 18.0 MB\n")

	// The standard error is a terminal, and the log goes to a file.
	cmd := exec.CommandContext(t.Context(), os.Args[0], "submit", "large.json")
	cmd.Env, cmd.Dir = env, s.dir
	file, err := os.Create(s.dir + "/out")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	cmd.Stdout = file
	terminal, err := pty.Start(cmd)
	require.NoError(t, err)
	shown, _ := io.ReadAll(terminal) // it ends with an error when the program ends
	_ = terminal.Close()
	require.NoError(t, cmd.Wait(), string(shown))
	assert.Contains(t, string(shown), "dlite watch stage/large")
}

func TestABarIsPaintedAndRemoved(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := &counter{ReadCloser: io.NopCloser(bytes.NewReader(make([]byte, 4*small))), out: &out, verb: "sent", size: 4 * small, bar: true}
	_, err := io.ReadFull(c, make([]byte, 2*small))
	require.NoError(t, err)
	assert.Equal(t, "\r\x1b[Ksent 2.1 MB of 4.2 MB [##########          ]", out.String())
	require.NoError(t, c.Close())
	assert.True(t, strings.HasSuffix(out.String(), "]\r\x1b[K"), "%q", out.String())
	assert.NoError(t, c.Close())
}
