package peers_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/cgi"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/task"
)

const logToken = "visibly-fake-token"

// startLogService returns a real log service and its URL.
func startLogService(t *testing.T) (*logservice.Server, string) {
	t.Helper()
	logs, err := logservice.New(logservice.Config{Authorize: logservice.Tokens(map[string]string{"acme": logToken})})
	require.NoError(t, err)
	server := httptest.NewServer(logs)
	t.Cleanup(func() {
		server.Close()
		assert.NoError(t, logs.Close())
	})
	return logs, server.URL
}

// Rules D8, L2: the complete log of a v2 task goes to the log service that the task names.
func TestACGITaskWritesItsLogToTheLogService(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the program is a shell script")
	}
	logs, url := startLogService(t)
	program := filepath.Join(t.TempDir(), "program")
	script := "#!/bin/sh\necho one >&2; printf 'two' >&2; printf 'A: b\\n\\nok'\n"
	require.NoError(t, os.WriteFile(program, []byte(script), 0o600))
	files := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(program))))
	defer files.Close()
	h, err := cgi.New(cgi.Config{Cache: t.TempDir(), LogWait: time.Minute})
	require.NoError(t, err)
	defer func() { assert.NoError(t, h.Close(context.Background())) }()
	config, err := json.Marshal(map[string]any{"executable_config": map[string]any{
		"name": "program", "version": rand.Text(),
		"executables": []map[string]string{{"os": runtime.GOOS, "arch": runtime.GOARCH, "url": files.URL + "/program"}},
	}})
	require.NoError(t, err)
	resp, _ := task.Serve(t.Context(), h, &task.Task{
		ID: "t", Type: "x", Config: config, Data: json.RawMessage(`"1"`),
		Logger: &task.Logger{Address: url, Token: logToken, Account: "acme", Key: "k"},
	})
	require.Equal(t, task.OK, resp.Code, resp.Error)
	var text strings.Builder
	for line := range logs.Tail(t.Context(), "acme", "k") {
		text.WriteString(line.Out)
	}
	assert.True(t, strings.HasSuffix(text.String(), "\none\ntwo"), text.String())
}

// Rules S3, L2, and docs/protocol.md section 5: if a driver leaves a step's log to the agent,
// the log service has the complete log when the poll is answered. The secrets of setup and
// step are masked in it.
func TestAnAgentWritesTheLogOfAStepToTheLogServiceMasked(t *testing.T) {
	t.Parallel()
	_, url := startLogService(t)
	config := fmt.Sprintf(`,"log_config":{"account_id":"acme","url":%q,"token":%q,"indirect_upload":true}`, url, logToken)
	work, memory := testbed.StageFolders(t)
	d, err := local.New(local.Config{Host: host.Config{WorkDir: work, MemoryDir: memory}, Docker: local.DockerConfig{Host: "unix:///no/such/engine.sock"}})
	require.NoError(t, err)
	a := agent.New(d, agent.Config{TempDir: t.TempDir()})
	server := httptest.NewServer(a.Handler())
	t.Cleanup(func() {
		server.Close()
		assert.NoError(t, a.Close(context.Background()))
		assert.NoError(t, d.Close())
	})
	post := func(path, body string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		resp, err := server.Client().Do(req)
		require.NoError(t, err)
		defer resp.Body.Close() //nolint:errcheck // read to its end
		var answer bytes.Buffer
		_, err = answer.ReadFrom(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, answer.String())
		return answer.String()
	}
	step := func(id, script, more string) string {
		return fmt.Sprintf(`{"id":%q,"environment":{},"kind":"Run","run":{"entrypoint":["sh","-c"],"commands":[%q]}%s}`, id, script, more)
	}
	archived := func(key string) (status int, text string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/blob?accountID=acme&key="+key, nil)
		require.NoError(t, err)
		req.Header.Set("X-Harness-Token", logToken)
		resp, err := server.Client().Do(req)
		require.NoError(t, err)
		defer resp.Body.Close() //nolint:errcheck // read to its end
		for lines := json.NewDecoder(resp.Body); ; {
			var line struct{ Out string }
			if lines.Decode(&line) != nil {
				return resp.StatusCode, text
			}
			text += line.Out
		}
	}
	// The log is complete when the answer arrives, so the test does not wait for it.
	logged := func(key string) string {
		t.Helper()
		status, text := archived(key)
		assert.Equal(t, http.StatusOK, status, key)
		return text
	}
	post("/setup", `{"network":{"id":"n"},"mount_docker_socket":false`+config+`,"secrets":["of-the-setup"]}`)
	post("/start_step", step("one", `for s in setup step; do printf %s of-; echo the-$s; done; printf 'no newline'`,
		`,"log_key":"stage/one","secrets":["of-the-step"]`))
	assert.Contains(t, post("/poll_step", `{"id":"one"}`), `"exited":true`)
	assert.Equal(t, "******\n******\nno newline", logged("stage/one"))
	// The reader of the raw output must mask it.
	assert.Contains(t, post("/stream_output", `{"id":"one"}`), "of-the-setup\n")

	post("/start_step", step("failed", `true`, `,"log_key":"failed","working_dir":"/no/of-the-setup"`))
	post("/poll_step", `{"id":"failed"}`)
	assert.Contains(t, logged("failed"), `"/no/******" is not a directory of this machine`)

	post("/start_step", step("drone", `echo x`, `,"log_key":"drone","log_drone":true`))
	post("/poll_step", `{"id":"drone"}`)
	post("/start_step", step("service", `echo up; touch up; sleep 600`, `,"log_key":"service","detach":true`+config))
	post("/start_step", step("wait", `while [ ! -e up ]; do sleep 0.01; done`, ``))
	post("/poll_step", `{"id":"wait"}`)
	post("/destroy", `{}`)
	assert.Equal(t, "up\n", logged("service"), "the destroy closes the log of a detached step")
	status, _ := archived("drone")
	assert.Equal(t, http.StatusNotFound, status, "the driver takes care of that one")
}
