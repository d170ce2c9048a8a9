package endtoend_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// site is a manager, and the directory with all files of the manager and its delegates: work
// directories, records, logs, home directories, temporary files.
type site struct {
	*programs
	hunt   *hunt
	dir    string // the searched directory
	given  string // files with secrets that the test itself put there
	secret string // the account's secret
	bin    string
	bound  []string // addresses where the programs serve metrics

	readers sync.WaitGroup
	holds   sync.Mutex
	waiting map[string]chan struct{} // channels for steps that wait; guarded by holds
}

// startSite builds the programs and starts the manager.
func startSite(t *testing.T, h *hunt) *site {
	t.Helper()
	s := &site{hunt: h, dir: t.TempDir(), given: t.TempDir(), bin: t.TempDir(), waiting: map[string]chan struct{}{}, secret: "00c0ffee00c0ffee" + randomHex()}
	h.needles.add("the account's secret", s.secret)
	for _, d := range []string{"home", "tmp"} {
		require.NoError(t, os.Mkdir(filepath.Join(s.dir, d), 0o700))
	}
	for _, name := range []string{"manager", "delegate"} {
		require.NoError(t, os.Rename(testbed.BuildStatic(t, "./examples/"+name), filepath.Join(s.bin, name)))
	}
	accounts := filepath.Join(s.given, "manager.env")
	require.NoError(t, os.WriteFile(accounts, []byte("ACCOUNTS="+"leaky="+s.secret+"\n"), 0o600))
	m := s.program(t, "manager", "server", "--listen", "127.0.0.1:0", "--log-level", "trace", "--env-file", accounts, "--http-bind", s.observed(t),
		"--data-dir", filepath.Join(s.dir, "data")) // the database and the logs
	r, w := io.Pipe()
	stdout, err := os.Create(filepath.Join(s.dir, "manager.out"))
	require.NoError(t, err)
	m.Stdout = io.MultiWriter(stdout, w)
	begin(t, m, func() { assert.NoError(t, w.Close()); assert.NoError(t, stdout.Close()) })
	lines := bufio.NewScanner(r)
	require.True(t, lines.Scan())
	address, ok := strings.CutPrefix(lines.Text(), "serving at ")
	require.True(t, ok, lines.Text())
	go func() { _, _ = io.Copy(io.Discard, r) }()

	token, err := exec.CommandContext(t.Context(), filepath.Join(s.bin, "manager"), "token", "leaky", "--env-file", accounts).Output()
	require.NoError(t, err)
	s.programs = &programs{url: address, account: "leaky", token: strings.TrimSpace(string(token))}
	// Every token begins with the same header, which is no secret.
	_, secretPart, ok := strings.Cut(s.token, "..")
	require.True(t, ok, "a token has no key between its header and its vector")
	h.needles.add("a token", secretPart)
	h.folders = append(h.folders, s.dir)
	h.held = func(name string) {
		stage, step, _ := strings.Cut(name, ".")
		s.follow(t, stage+"/"+step)
		s.holds.Lock()
		defer s.holds.Unlock()
		if c := s.waiting[name]; c != nil {
			close(c)
			delete(s.waiting, name)
		}
	}
	return s
}

// program returns a command that writes all its files to the site's directory.
func (s *site) program(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	path, from := filepath.Join(s.dir, name), "delegate"
	if name == "manager" {
		from = name
	}
	if err := os.Link(filepath.Join(s.bin, from), path); !errors.Is(err, fs.ErrExist) {
		require.NoError(t, err)
	}
	cmd := program(t, path, args...)
	cmd.Env = append(cmd.Env, s.hunt.processes.environment(), "HOME="+filepath.Join(s.dir, "home"), "TMPDIR="+filepath.Join(s.dir, "tmp"))
	cmd.Dir = s.dir
	return cmd
}

// delegate returns the command of a delegate.
func (s *site) delegate(t *testing.T, name, address, settings string, environ ...string) *exec.Cmd {
	t.Helper()
	config := filepath.Join(s.given, name+".env")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `ACCOUNT_ID=leaky
TOKEN=%s
URL=%s
NAME=%s
WORK_DIR=%s
LEDGER_DIR=%s
SECRETS_DIR=%s
LOG_LEVEL=trace
LOG_ENABLE_FILE_LOGGING=true
LOG_FILE=%s.file
HTTP_BIND=%s
CLEANUP_GRACE_PERIOD_SECONDS=1
%s`, s.secret, address, name, filepath.Join(s.dir, "work-"+name), filepath.Join(s.dir, "ledger-"+name), s.given, name, s.observed(t), settings), 0o600))
	d := s.program(t, name, "server", "--env-file", config)
	d.Env = append(d.Env, environ...)
	return d
}

// observed reserves an address where a program will serve its metrics.
func (s *site) observed(t *testing.T) string {
	t.Helper()
	address := "127.0.0.1:" + freePort(t)
	s.bound = append(s.bound, address)
	return address
}

// metrics searches the metrics and health that the programs serve.
func (s *site) metrics(t *testing.T) {
	t.Helper()
	for _, address := range s.bound {
		for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
			s.fetch(t, http.MethodGet, "http://"+address+path, "")
		}
	}
}

// call is programs.call for any status. It searches the answer.
func (s *site) call(t *testing.T, method, path, body string) []byte {
	return s.fetch(t, method, s.url+path, body)
}

func (s *site) fetch(t *testing.T, method, address, body string) []byte {
	path := strings.TrimPrefix(address, s.url)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if !assert.NoError(t, err) {
		return nil
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("X-Harness-Token", s.token)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if !assert.NoError(t, err) {
		return nil
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	assert.NoError(t, err, path)
	if res.StatusCode == http.StatusNotFound && strings.HasPrefix(path, "/stream") {
		return nil
	}
	s.hunt.searchDecoded("answers", method+" "+path, answer)
	if strings.HasPrefix(path, "/stream") || strings.HasPrefix(path, "/blob") {
		s.hunt.search("logs", method+" "+path, []byte(logText(answer)))
	}
	return answer
}

// logText returns the printed text of a stream's events or an archive's lines.
func logText(answer []byte) string {
	var text strings.Builder
	for line := range strings.SplitSeq(string(answer), "\n") {
		var l struct {
			Out string `json:"out"`
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &l) == nil {
			text.WriteString(l.Out)
		}
	}
	return text.String()
}

// follow reads a live log to its end.
func (s *site) follow(t *testing.T, key string) {
	s.readers.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for range 500 {
			if s.call(t, http.MethodGet, s.logPath("stream", key), "") != nil {
				return
			}
			<-tick.C
		}
		t.Errorf("there is no stream %s", key)
	})
}

func (s *site) logPath(what, key string) string {
	return "/" + what + "?accountID=" + s.account + "&key=" + url.QueryEscape(key)
}

// log returns the text of an archived log.
func (s *site) log(t *testing.T, key string) string {
	return logText(s.call(t, http.MethodGet, s.logPath("blob", key), ""))
}

// run submits a stage and waits for its end. If abort is closed before, it aborts the stage.
func (s *site) run(t *testing.T, request map[string]any, abort <-chan struct{}) (st api.Stage) {
	body, err := json.Marshal(request)
	require.NoError(t, err)
	answer := s.call(t, http.MethodPost, "/api/stages?accountId="+s.account, string(body))
	id, _ := request["id"].(string)
	if abort != nil {
		s.readers.Go(func() {
			<-abort
			s.call(t, http.MethodPost, "/api/stages/"+id+"/abort?accountId="+s.account, "")
		})
	}
	for begun := time.Now(); ; {
		st = api.Stage{}
		if !assert.NoError(t, json.Unmarshal(answer, &st), "%s", answer) || !assert.Less(t, time.Since(begun), 2*time.Minute, "%s", answer) {
			t.FailNow()
		}
		if st.Status.Ended() {
			break
		}
		answer = s.call(t, http.MethodGet, "/api/stages/"+id+"?wait=20&accountId="+s.account, "")
	}
	for _, part := range append([]api.StepState{st.Init, st.Cleanup}, st.Steps...) {
		if part.LogKey != "" {
			s.log(t, part.LogKey)
		}
	}
	return st
}

// randomHex returns 16 hexadecimal digits.
func randomHex() string {
	return hex.EncodeToString([]byte(rand.Text()[:8]))
}
