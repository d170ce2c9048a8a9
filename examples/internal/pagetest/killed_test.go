package pagetest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/internal/token"
)

const fakeSecret = "98d8fedb04c574e68939164bf463e73d"

// program is a manager in a process that the test can kill.
type program struct {
	t       testing.TB
	path    string
	dir     string
	address string
	cmd     *exec.Cmd
}

func (m *program) start() {
	m.t.Helper()
	m.cmd = exec.CommandContext(context.Background(), m.path, "server")
	m.cmd.Env = append(os.Environ(), "LISTEN="+m.address, "DATA_DIR="+m.dir, "ACCOUNTS=acme="+fakeSecret, "HTTP_BIND=off")
	out, err := os.OpenFile(filepath.Join(m.dir, "output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(m.t, err)
	m.cmd.Stdout, m.cmd.Stderr = out, out
	require.NoError(m.t, m.cmd.Start())
	require.NoError(m.t, out.Close())
	require.Eventually(m.t, func() bool {
		c, err := new(net.Dialer).DialContext(m.t.Context(), "tcp", m.address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, patience, between)
}

func (m *program) kill() {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
}

// call makes a call of the API or of the log service.
func (m *program) call(method, path, body string) string {
	m.t.Helper()
	secret, err := token.ParseSecret(fakeSecret)
	require.NoError(m.t, err)
	tok, err := secret.Issue("acme", time.Now(), time.Hour)
	require.NoError(m.t, err)
	r, err := http.NewRequestWithContext(m.t.Context(), method, "http://"+m.address+path, strings.NewReader(body))
	require.NoError(m.t, err)
	r.Header.Set("Authorization", "Bearer "+tok)
	r.Header.Set("X-Harness-Token", tok)
	r.Header.Set("Dlite-Log-Writer", "test")
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	require.NoError(m.t, err)
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	require.NoError(m.t, err)
	require.Less(m.t, answer.StatusCode, 300, string(b))
	return string(b)
}

// write appends lines to the log of the stage's init, where the manager also says why the stage waits.
func (m *program) write(first, last int) {
	m.t.Helper()
	var lines []string
	for i := first; i <= last; i++ {
		lines = append(lines, fmt.Sprintf(`{"level":"info","pos":%d,"out":"extra %d\n","time":"2030-01-02T03:04:05Z"}`, i, i))
	}
	m.call(http.MethodPut, "/stream?accountID=acme&key=held/:init", "["+strings.Join(lines, ",")+"]")
}

func TestAnOpenPageOutlivesTheManager(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &program{t: t, path: testbed.BuildStatic(t, "./examples/manager"), dir: t.TempDir(), address: l.Addr().String()}
	require.NoError(t, l.Close())
	m.start()
	defer func() { m.kill() }()
	p := open(t, "http://"+m.address+"/")
	p.expect("Failed to load resource") // while there is no manager
	p.shows("h1", "Sign in")
	secret, err := token.ParseSecret(fakeSecret)
	require.NoError(t, err)
	tok, err := secret.Issue("acme", time.Now(), time.Hour)
	require.NoError(t, err)
	p.enter("Account", "acme")
	p.enter("Token", tok)
	p.press("button", "Sign in")
	p.shows("h1", "Runs")

	m.call(http.MethodPost, "/api/stages?accountId=acme", `{"id":"held","name":"Held","selectors":["gpu"],"steps":[{"id":"a","data":{"run":{"entrypoint":["true"]}}}]}`)
	p.visit("#/stages/held")
	p.shows(".reason", "no delegate is registered")
	p.shows(".line", "queued")
	m.write(1, 50)
	p.shows(".line", "extra 50")

	m.kill()
	p.shows(".feed", "Connection lost")
	p.shows(".log-state", "connection lost")
	m.start()
	m.write(40, 100) // the service knows some of them
	p.shows(".line", "extra 100")
	p.shows(".feed", "Live")
	p.enter("Search the log", "extra ")
	p.shows(".hits", "100 lines")
	m.call(http.MethodPost, "/api/stages/held/abort?accountId=acme", "")
	p.shows(".run-title .badge", "aborted")
	assert.NotContains(t, value[string](p, `document.cookie`), "dlite", "no script reads the session")

	m.kill()
	p.visit("#/perpetual")
	p.shows(".notice", "The manager cannot be reached")
	m.start()
	p.press("button", "Try again")
	p.shows(".notice", "There are no perpetual tasks.")
}
