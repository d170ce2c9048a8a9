package endtoend_test

import (
	"bufio"
	"encoding/json"
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
	"github.com/delegate-io/dlite/manager/api"
)

// heldScene is a bundled manager, which the test may kill, and a bundled delegate.
type heldScene struct {
	programs
	t        *testing.T
	dir      string
	address  string
	settings string
}

func newHeldScene(t *testing.T) *heldScene {
	s := &heldScene{t: t, dir: t.TempDir(), address: "127.0.0.1:" + freePort(t)}
	testbed.Keep(t, s.dir)
	for _, name := range []string{"manager", "delegate"} {
		require.NoError(t, os.Rename(testbed.BuildStatic(t, "./examples/"+name), filepath.Join(s.dir, name)))
	}
	secret := "00c0ffee00c0ffee" + randomHex()
	s.settings = filepath.Join(s.dir, "manager.env")
	require.NoError(t, os.WriteFile(s.settings, []byte("ACCOUNTS=acc="+secret+"\n"), 0o600))
	s.url, s.account = "http://"+s.address, "acc"
	s.startManager()
	token, err := exec.CommandContext(t.Context(), filepath.Join(s.dir, "manager"), "token", "acc", "--env-file", s.settings).Output() //nolint:gosec // our program
	require.NoError(t, err)
	s.token = strings.TrimSpace(string(token))
	config := filepath.Join(s.dir, "delegate.env")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil,
		"ACCOUNT_ID=acc\nTOKEN=%s\nURL=%s\nNAME=held\nLOG_LEVEL=warn\nHTTP_BIND=off\nWORK_DIR=%s\nLEDGER_DIR=%s\n",
		secret, s.url, filepath.Join(s.dir, "work"), filepath.Join(s.dir, "ledger")), 0o600))
	begin(t, program(t, filepath.Join(s.dir, "delegate"), "server", "--env-file", config), func() {})
	return s
}

func (s *heldScene) startManager() {
	m := program(s.t, filepath.Join(s.dir, "manager"), "server", "--listen", s.address, "--http-bind", "off",
		"--data-dir", filepath.Join(s.dir, "data"), "--env-file", s.settings, "--log-level", "warn")
	out, err := m.StdoutPipe()
	require.NoError(s.t, err)
	m.Stderr = os.Stderr
	require.NoError(s.t, m.Start())
	lines := bufio.NewReader(out)
	_, err = lines.ReadString('\n')
	require.NoError(s.t, err, "the manager does not start")
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	s.manager = m
	s.t.Cleanup(func() {
		if m.ProcessState == nil { // otherwise the test has killed it
			assert.NoError(s.t, m.Process.Signal(os.Interrupt))
			assert.NoError(s.t, m.Wait())
		}
	})
}

// killManager kills the manager and starts another one on its state.
func (s *heldScene) killManager() {
	require.NoError(s.t, s.manager.Process.Kill())
	require.Error(s.t, s.manager.Wait())
	s.startManager()
}

// stage makes a call about a stage and returns its state.
func (s *heldScene) stage(method, path, body string) (st api.Stage) {
	s.t.Helper()
	answer := s.call(s.t, method, "/api/stages"+path+"?accountId=acc", body)
	require.NoError(s.t, json.Unmarshal(answer, &st), "%s", answer)
	return st
}

// ended waits until a stage has ended.
func (s *heldScene) ended(id string) (st api.Stage) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		st = s.stage(http.MethodGet, "/"+id, "")
		return st.Status.Ended()
	}, 3*time.Minute, 50*time.Millisecond)
	return st
}

// sendOnly sends a call and reads no answer.
func (s *heldScene) sendOnly(path, body string) {
	s.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", s.address)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST /api/stages%s?accountId=acc HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		path, s.token, len(body), body)
	require.NoError(s.t, err)
}

// hostStep returns the JSON of a step that runs a script.
func hostStep(id, script, more string) string {
	return fmt.Sprintf(`{"id":%q,"data":{"run":{"entrypoint":["sh","-ec"],"commands":[%q]}%s}}`, id, script, more)
}

// The two steps of one append wait for each other, so they run at the same time. The
// manager dies after it has stored the append and before its caller has the answer.
func TestAHeldStageSurvivesTheDeathOfTheManager(t *testing.T) {
	s := newHeldScene(t)
	st := s.stage(http.MethodPost, "", `{"id":"held","hold":{"lease_ms":600000}}`)
	require.True(t, st.Open)
	const meet = `echo ran >> runs; touch %s; while [ ! -e %s ]; do sleep 0.05; done`
	body := `{"steps":[` + hostStep("left", fmt.Sprintf(meet, "left", "right")+"; VERSION=1.2.3", `,"output_vars":["VERSION"]`) + "," +
		hostStep("right", fmt.Sprintf(meet, "right", "left")+"; exit 3", "") + `]}`
	s.sendOnly("/held/steps", body)
	require.Eventually(t, func() bool { return len(s.stage(http.MethodGet, "/held", "").Steps) == 2 }, time.Minute, 10*time.Millisecond)
	s.killManager()
	st = s.stage(http.MethodPost, "/held/steps", body)
	require.Len(t, st.Steps, 2, "the repeated append adds nothing")

	require.Eventually(t, func() bool {
		st = s.stage(http.MethodGet, "/held", "")
		return st.Steps[0].Status.Ended() && st.Steps[1].Status.Ended()
	}, 3*time.Minute, 50*time.Millisecond)
	assert.Equal(t, map[string]string{"VERSION": "1.2.3"}, st.Steps[0].OutputVars)
	assert.Equal(t, 3, st.Steps[1].ExitCode)
	assert.Equal(t, api.FailureExitCode, st.Steps[1].FailureKind)
	require.True(t, st.Open)

	s.stage(http.MethodPost, "/held/steps", `{"steps":[`+hostStep("count", "cat runs", "")+`]}`)
	s.stage(http.MethodPost, "/held/finish", "")
	st = s.ended("held")
	assert.Equal(t, api.FailureExitCode, st.FailureKind)
	assert.Equal(t, api.Success, st.Cleanup.Status)
	assert.Equal(t, "ran\nran\n", s.log(t, "held/count"), "each step ran once, and the log's token was valid")
	assert.Empty(t, filesBelow(t, filepath.Join(s.dir, "work")))
}

// The holder renews the lease once and then dies. The step would run for an hour.
func TestNothingOfAHeldStageIsLeftAfterItsHolderDied(t *testing.T) {
	s := newHeldScene(t)
	s.stage(http.MethodPost, "", `{"id":"held","hold":{"lease_ms":20000}}`)
	s.stage(http.MethodPost, "/held/steps", `{"steps":[`+hostStep("long", "touch here; sleep 3600", "")+`]}`)
	require.Eventually(t, func() bool {
		st := s.stage(http.MethodPost, "/held/renew", "")
		return st.Steps[0].Status == api.Running
	}, 3*time.Minute, 50*time.Millisecond)
	st := s.ended("held")
	assert.Equal(t, api.Failure, st.Status)
	assert.Equal(t, api.FailureLeaseEnded, st.FailureKind)
	assert.Equal(t, api.Aborted, st.Steps[0].Status)
	assert.Equal(t, api.Success, st.Cleanup.Status)
	assert.Empty(t, filesBelow(t, filepath.Join(s.dir, "work")))
}
