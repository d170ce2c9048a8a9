package endtoend_test

import (
	"bufio"
	"context"
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
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// programs are the bundled manager and delegate, set up as a new user does: built, started,
// and connected by the settings that the manager prints.
type programs struct {
	url, account, token string
	manager, delegate   *exec.Cmd
	data                string // directory of the manager
}

// startPrograms builds and starts both, the delegate with more settings. At the end of the
// test it interrupts them. They must end without an error and leave no resource.
func startPrograms(t testing.TB, settings ...string) *programs {
	t.Helper()
	return startProgramsWith(t, nil, nil, settings...)
}

// startProgramsWith is startPrograms with further arguments of the manager and variables of the
// delegate.
func startProgramsWith(t testing.TB, arguments, environment []string, settings ...string) *programs {
	t.Helper()
	dir := t.TempDir()
	testbed.Keep(t, dir) // machines and processes of steps survive a delegate
	for _, name := range []string{"manager", "delegate"} {
		require.NoError(t, os.Rename(testbed.BuildStatic(t, "./examples/"+name), filepath.Join(dir, name)))
	}
	stdout, err := os.Create(filepath.Join(dir, "manager.out"))
	require.NoError(t, err)
	m := program(t, filepath.Join(dir, "manager"), append([]string{
		"server", "--listen", "127.0.0.1:0", "--http-bind", "off", "--data-dir", filepath.Join(dir, "data"),
	}, arguments...)...)
	r, w := io.Pipe()
	m.Stdout = io.MultiWriter(stdout, w)
	begin(t, m, func() { assert.NoError(t, errors.Join(w.Close(), stdout.Close())) })
	var printed strings.Builder
	lines := bufio.NewScanner(r)
	for lines.Scan() && !strings.Contains(lines.Text(), "/blob?") {
		fmt.Fprintln(&printed, lines.Text())
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	find := func(pattern string) string {
		found := regexp.MustCompile(pattern).FindStringSubmatch(printed.String())
		require.NotNil(t, found, "%s is not in the output of the manager:\n%s", pattern, printed.String())
		return found[1]
	}

	work, ledger := filepath.Join(dir, "work"), filepath.Join(dir, "ledger")
	config := filepath.Join(dir, "config.env")
	require.NoError(t, os.WriteFile(config, []byte(find(`(?s)config\.env[^\n]*:\s+(ACCOUNT_ID=.*?)\n\n`)+
		"\nNAME=real-use\nTAGS=linux\nMAX_STAGES=4\nLOG_LEVEL=warn\nHTTP_BIND=off\nCLEANUP_GRACE_PERIOD_SECONDS=10\n"+
		"WORK_DIR="+work+"\nLEDGER_DIR="+ledger+"\n"+strings.Join(settings, "\n")), 0o600))
	d := program(t, filepath.Join(dir, "delegate"), "server", "--env-file", config)
	d.Env = append(d.Env, environment...)
	begin(t, d, func() {
		assert.Empty(t, filesBelow(t, work), "left in the work folder")
		for _, file := range filesBelow(t, ledger) {
			if strings.Contains(file, "/snapshots/") {
				continue // the next process uses it again
			}
			assert.Contains(t, []string{"id", "lock", "notes.key", "owner", "targets.key"}, filepath.Base(file), "%s is left in the ledger", file)
		}
	})
	return &programs{
		url: find(`URL="(.*)"`), account: find(`ACCOUNT_ID="(.*)"`), token: find(`API_TOKEN='(.*)'`),
		manager: m, delegate: d, data: filepath.Join(dir, "data"),
	}
}

// program returns a command whose environment is independent of the test's.
func program(t testing.TB, path string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	for _, name := range []string{"PATH", "HOME", "DOCKER_HOST", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	return cmd
}

// begin starts a program. At the end of the test it interrupts the program, which must
// succeed.
func begin(t testing.TB, cmd *exec.Cmd, then func()) {
	t.Helper()
	log, err := os.Create(cmd.Path + ".log")
	require.NoError(t, err)
	cmd.Stderr = log
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		assert.NoError(t, cmd.Process.Signal(os.Interrupt))
		late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		assert.NoError(t, cmd.Wait(), filepath.Base(cmd.Path))
		late.Stop()
		then()
		assert.NoError(t, log.Close())
		text, err := os.ReadFile(log.Name())
		assert.NoError(t, err)
		t.Logf("%s said:\n%s", filepath.Base(cmd.Path), text)
	})
}

func filesBelow(t testing.TB, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			files = append(files, rel)
		}
		return err
	})
	assert.NoError(t, err)
	return files
}

// run submits a stage under an id and waits for its end.
func (p *programs) run(t *testing.T, id, request string) api.Stage {
	t.Helper()
	var body map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(request), &body))
	body["id"], _ = json.Marshal(id)
	text, err := json.Marshal(body)
	require.NoError(t, err)
	answer := p.call(t, http.MethodPost, "/api/stages?accountId="+p.account, string(text))
	for begun := time.Now(); ; {
		var st api.Stage
		require.NoError(t, json.Unmarshal(answer, &st), "%s", answer)
		if st.Status.Ended() {
			return st
		}
		require.Less(t, time.Since(begun), 15*time.Minute, "%s", answer) // longer than the stage's own time-out
		answer = p.call(t, http.MethodGet, "/api/stages/"+id+"?wait=60&accountId="+p.account, "")
	}
}

// log returns the text of an archived log.
func (p *programs) log(t *testing.T, key string) string {
	t.Helper()
	answer := p.call(t, http.MethodGet, "/blob?accountID="+p.account+"&key="+url.QueryEscape(key), "")
	var text strings.Builder
	for d := json.NewDecoder(strings.NewReader(string(answer))); ; {
		var line struct {
			Out string `json:"out"`
		}
		err := d.Decode(&line)
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		require.NoError(t, err)
		text.WriteString(line.Out)
	}
}

func (p *programs) call(t *testing.T, method, path, body string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("X-Harness-Token", p.token)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Less(t, res.StatusCode, 300, "%s %s: %s", method, path, answer)
	return answer
}
