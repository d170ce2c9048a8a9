//go:build unix

package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/task/stage"
)

// foreignAgent is a foreign agent, written from docs/protocol.md, section 5, with its limits: it
// never answers a step without environment. A second poll consumes the answer, and a
// stage_runtime_id prevents it. Output exists only with log_drone, and outputs only without it. It
// cannot stop a step.
type foreignAgent struct {
	t *testing.T

	mu     sync.Mutex
	steps  map[string]*foreignStep
	begun  []map[string]any
	polls  map[string]int
	health string
	setup  map[string]any
	dir    string // root directory of its machine
	cut    int    // streams that were closed before their step ended
}

type foreignStep struct {
	req    map[string]any
	out    *drivertest.Output
	done   chan struct{}
	answer map[string]any
}

func newForeignAgent(t *testing.T) (*foreignAgent, *agent.Client) {
	t.Helper()
	f := &foreignAgent{t: t, dir: t.TempDir(), steps: map[string]*foreignStep{}, polls: map[string]int{}}
	server := httptest.NewServer(f)
	transport := &http.Transport{}
	c := agent.NewClient(server.URL, transport)
	t.Cleanup(func() {
		for _, s := range f.steps {
			<-s.done
		}
		assert.Zero(t, f.cut, "this crashes some agents")
		assert.NoError(t, c.Destroy(context.Background(), &agent.DestroyRequest{}))
		transport.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
	return f, c
}

func (f *foreignAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	id, _ := body["id"].(string)
	f.mu.Lock()
	s := f.steps[id]
	f.mu.Unlock()
	switch r.URL.Path {
	case "/healthz":
		f.mu.Lock()
		f.health = r.URL.RawQuery
		f.mu.Unlock()
		_, _ = io.WriteString(w, `{"version":"0.5.122","docker_installed":true,"git_installed":true,"lite_engine_log":"","ok":true}`)
	case "/setup":
		f.mu.Lock()
		f.setup = body
		f.mu.Unlock()
		f.volumes(body)
		_, _ = io.WriteString(w, `{}`)
	case "/suspend":
		_, _ = io.WriteString(w, `{}`)
	case "/destroy":
		_, _ = io.WriteString(w, `{"os_stats":{"cpu":1}}`)
	case "/start_step":
		if body["environment"] == nil {
			<-r.Context().Done()
			return
		}
		f.start(id, body)
		_, _ = io.WriteString(w, `{}`)
	case "/poll_step":
		f.mu.Lock()
		f.polls[id]++
		f.mu.Unlock()
		if s == nil {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error_msg":"Step has not started"}`)
			return
		}
		if s.req["stage_runtime_id"] != nil {
			<-r.Context().Done()
			return
		}
		if s.req["detach"] == true {
			_, _ = io.WriteString(w, `{}`)
			return
		}
		<-s.done
		_ = json.NewEncoder(w).Encode(s.answer)
	case "/stream_output":
		if s == nil || s.req["log_drone"] != true || id == "unread" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error_msg":"Step has not started"}`)
			return
		}
		select {
		case <-s.done:
		case <-r.Context().Done():
			f.mu.Lock()
			defer f.mu.Unlock()
			f.cut++
			return
		}
		offset, _ := body["offset"].(float64)
		_, _ = io.WriteString(w, s.out.String()[int(offset):])
	default:
		http.NotFound(w, r) // in plain text
	}
}

// volumes creates the host directories that the setup names.
func (f *foreignAgent) volumes(setup map[string]any) {
	list, _ := setup["volumes"].([]any)
	for _, v := range list {
		host, _ := v.(map[string]any)["host"].(map[string]any)
		if path, ok := host["path"].(string); ok && host["create"] == true {
			assert.NoError(f.t, os.MkdirAll(filepath.Join(f.dir, path), 0o700))
		}
	}
}

// start runs a script on the host. It simulates the ends "late" and "oom".
func (f *foreignAgent) start(id string, req map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.steps[id] != nil {
		return
	}
	f.begun = append(f.begun, req)
	s := &foreignStep{req: req, out: drivertest.NewOutput(), done: make(chan struct{}), answer: map[string]any{}}
	f.steps[id] = s
	go func() {
		defer close(s.done)
		run, _ := req["run"].(map[string]any)
		commands, _ := run["commands"].([]any)
		text, _ := commands[0].(string)
		inside := func(text string) string { return strings.ReplaceAll(text, "/tmp/", f.dir+"/tmp/") }
		cmd := exec.Command("sh", "-c", inside(text)) //nolint:gosec,noctx // a test's own script
		vars, _ := req["environment"].(map[string]any)
		cmd.Env = os.Environ()
		for name, value := range vars {
			cmd.Env = append(cmd.Env, name+"="+inside(value.(string)))
		}
		cmd.Stdout, cmd.Stderr = s.out, s.out
		cmd.Dir = filepath.Join(f.dir, req["working_dir"].(string))
		err := cmd.Run()
		s.answer["exited"] = true
		switch {
		case cmd.Process == nil:
			s.answer["exit_code"], s.answer["error"] = 255, err.Error()
		case strings.HasPrefix(text, "exit 96"):
			s.answer["exit_code"], s.answer["error"] = 0, "cannot start it"
		case strings.HasPrefix(text, "exit 95"):
			s.answer["exited"] = false
		case strings.HasPrefix(text, "exit 94"):
			s.answer["exit_code"], s.answer["error"] = -1, "signal: killed"
		case strings.HasPrefix(text, "exit 99"):
			s.answer["exit_code"], s.answer["error"] = 255, "context deadline exceeded"
		case strings.HasPrefix(text, "exit 98"):
			s.answer["exit_code"], s.answer["error"], s.answer["oom_killed"] = 255, "oom killed", true
		case strings.HasPrefix(text, "exit 97"):
			s.answer["exit_code"], s.answer["error"] = 255, "1 error occurred: cannot find the image"
		case err != nil:
			s.answer["exit_code"], s.answer["error"] = cmd.ProcessState.ExitCode(), "exit status "+cmd.ProcessState.String()[len("exit status "):]
		}
		if req["log_drone"] != true {
			s.answer["outputs"] = map[string]string{"A": "1", "S": "hunter2"}
			s.answer["outputV2"] = []map[string]string{{"key": "A", "value": "1", "type": "STRING"}, {"key": "S", "value": "hunter2", "type": "SECRET"}}
			s.answer["envs"] = map[string]string{"E": "2"}
			s.answer["artifact"] = []byte("{}")
		}
	}()
}

// docs/protocol.md, section 5: a stage runs at a foreign agent.
func TestAStageRunsAtAForeignAgent(t *testing.T) {
	t.Parallel()
	f, c := newForeignAgent(t)
	h, err := c.Health(t.Context())
	require.NoError(t, err)
	assert.True(t, h.OK)
	assert.Empty(t, h.Agent)
	assert.Contains(t, f.health, "perform_dns_lookup=false")
	_, err = c.Setup(t.Context(), &agent.SetupRequest{ID: "s", Files: []*stage.File{{Path: "a/b"}, {Path: "/etc/c"}}})
	require.NoError(t, err)
	assert.NotContains(t, f.setup, "mount_docker_socket", "false is for a machine without an engine")
	assert.Equal(t, "/tmp/dlite-workspace/a/b", f.setup["files"].([]any)[0].(map[string]any)["path"])
	assert.Equal(t, "/etc/c", f.setup["files"].([]any)[1].(map[string]any)["path"])
	_, err = c.Setup(t.Context(), &agent.SetupRequest{ID: "s", Clone: &stage.Clone{URL: "http://127.0.0.1:1"}})
	require.ErrorContains(t, err, "cannot clone")

	// Without outputs, the client receives the output.
	req, out := script("step", "echo hello; exit 3"), drivertest.NewOutput()
	req.Key, req.StageRuntimeID = "key-1", "sr"
	res, err := c.Run(t.Context(), req, out)
	require.NoError(t, err)
	assert.Equal(t, 3, res.ExitCode)
	assert.Equal(t, "hello\n", out.String())
	sent := f.begun[0]
	assert.Equal(t, "key-1", sent["id"], "it starts an id once")
	assert.Equal(t, "/tmp/dlite-workspace/.dlite-key-1-env", sent["environment"].(map[string]any)["DRONE_ENV"])
	assert.NotContains(t, sent, "timeout", "the step has none")
	assert.Equal(t, true, sent["log_drone"])
	assert.Equal(t, "Run", sent["kind"])
	assert.Equal(t, "/tmp/dlite-workspace", sent["working_dir"], "this agent requires one")
	assert.Equal(t, false, sent["mount_docker_socket"], "nothing would mean true")
	assert.Equal(t, map[string]any{"kill_process_on_context_cancel": true}, sent["process_config"])
	assert.NotContains(t, sent, "stage_runtime_id", "a poll would never be answered")

	// In a Windows shell, a step with outputs sends its output to the log service.
	req, out = script("outputs", "echo hello"), drivertest.NewOutput()
	req.Run.Entrypoint = []string{"powershell.exe", "-Command"}
	req.LogKey, req.LogConfig = "k", &stage.LogConfig{URL: "http://127.0.0.1:1"}
	req.Outputs = []stage.Output{{Key: "A", Value: "A"}}
	res, err = c.Run(t.Context(), req, out)
	require.NoError(t, err)
	assert.Equal(t, "\n(this agent sends the output of a step with outputs to its log service, so it is not shown here)\n", out.String())
	assert.Equal(t, map[string]string{"A": "1"}, res.Outputs)
	assert.Equal(t, map[string]string{"S": "hunter2"}, res.Secrets)
	assert.Equal(t, map[string]string{"E": "2"}, res.Env)
	assert.Equal(t, []byte("{}"), res.Artifact)
	sent = f.begun[len(f.begun)-1]
	assert.Equal(t, "k", sent["log_key"])
	assert.Equal(t, 1, f.polls["outputs"])

	require.NoError(t, c.Destroy(t.Context(), &agent.DestroyRequest{}))
}

// A step at a foreign agent has both its log and the values that it hands on, although the agent gives only
// one of them: the client reads the files itself.
func TestAStepAtAForeignAgentHasItsLogAndItsOutputs(t *testing.T) {
	t.Parallel()
	f, c := newForeignAgent(t)
	_, err := c.Setup(t.Context(), &agent.SetupRequest{ID: "s"})
	require.NoError(t, err)
	req, out := script("one", `echo hello; V="a
b"; echo A=1 >>$DRONE_OUTPUT; echo E=2 >>$DRONE_ENV; echo T=visibly-fake >>$HARNESS_OUTPUT_SECRET_FILE; printf '{}' >$PLUGIN_ARTIFACT_FILE; S=visibly-fake-too; exit 3`), drivertest.NewOutput()
	req.LogKey, req.LogConfig = "k", &stage.LogConfig{URL: "http://127.0.0.1:1", Token: "visibly-fake"}
	req.OutputVars, req.Outputs, req.Conceal = []string{"V"}, []stage.Output{{Key: "SECRET", Value: "S", Type: stage.OutputSecret}}, true
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	res, err := c.Run(ctx, req, out)
	require.NoError(t, err)
	assert.Equal(t, 3, res.ExitCode)
	assert.Equal(t, "hello\n", out.String())
	assert.Equal(t, map[string]string{"A": "1", "V": "a\nb"}, res.Outputs)
	assert.Equal(t, map[string]string{"T": "visibly-fake", "SECRET": "visibly-fake-too"}, res.Secrets)
	assert.Equal(t, map[string]string{"E": "2"}, res.Env)
	assert.Equal(t, []byte("{}"), res.Artifact)
	assert.Empty(t, res.Lost)
	sent := f.begun[0]
	assert.InDelta(t, 3600, sent["timeout"], 60, "the time that is left")
	assert.NotContains(t, sent, "log_config", "the client has the log")
	assert.NotContains(t, sent, "outputs")
	assert.NotContains(t, sent["run"].(map[string]any)["commands"].([]any)[0], "visibly-fake", "the command line shows it")
	assert.Equal(t, script("one", "").Run.Entrypoint, req.Run.Entrypoint, "the caller's request does not change")
	left, err := os.ReadDir(filepath.Join(f.dir, "tmp/dlite-workspace"))
	require.NoError(t, err)
	assert.Empty(t, left, "the next step must not find the files")

	// Files that cannot be read fail a step that declares outputs.
	req = script("large", `head -c 1048577 /dev/zero >$DRONE_OUTPUT`)
	req.OutputVars = []string{"V"}
	res, err = c.Run(t.Context(), req, io.Discard)
	require.NoError(t, err)
	assert.Contains(t, res.Lost, "larger than 1048576 bytes")
}

// docs/protocol.md, section 5: the steps of a stage share a directory, also in containers.
func TestStepsAtAForeignAgentShareADirectory(t *testing.T) {
	t.Parallel()
	f, c := newForeignAgent(t)
	_, err := c.Setup(t.Context(), &agent.SetupRequest{ID: "s"})
	require.NoError(t, err)
	_, err = c.Run(t.Context(), script("one", "echo hello >file"), io.Discard)
	require.NoError(t, err)
	out := drivertest.NewOutput()
	in := script("two", "cat file")
	in.Image = "an/image"
	_, err = c.Run(t.Context(), in, out)
	require.NoError(t, err)
	assert.Equal(t, "hello\n", out.String())
	assert.Equal(t, []any{map[string]any{"name": "dlite-workspace", "path": "/tmp/dlite-workspace"}}, f.begun[2]["volumes"])
	assert.Empty(t, in.Volumes, "the caller's request does not change")
	for dir, want := range map[string]string{"/w": "/w", "sub": "/tmp/dlite-workspace/sub", `C:\w`: `C:\w`} {
		req := script("in "+dir, "true")
		req.WorkingDir = dir
		_, _ = c.Run(t.Context(), req, io.Discard)
		assert.Equal(t, want, f.begun[len(f.begun)-1]["working_dir"])
	}
}

// Rule D2: features that a foreign agent would silently ignore are refused.
func TestFeaturesThatAForeignAgentIgnoresAreRefused(t *testing.T) {
	t.Parallel()
	f, c := newForeignAgent(t)
	for want, change := range map[string]func(*agent.StartStepRequest){
		"plugins": func(r *agent.StartStepRequest) { r.Plugin = &stage.Plugin{} },
		"ready":   func(r *agent.StartStepRequest) { r.Ready = &stage.Ready{Port: 1} },
		"volumes": func(r *agent.StartStepRequest) { r.VolumesActual = []*stage.Volume{{}} },
		"ulimits": func(r *agent.StartStepRequest) { r.Ulimits = []*stage.Ulimit{{}} },
	} {
		req := script("x", "true")
		change(req)
		_, err := c.Run(t.Context(), req, io.Discard)
		require.ErrorContains(t, err, want)
	}
	assert.Empty(t, f.begun)
}

// Rule L2: unreadable output of a foreign agent is reported.
func TestUnreadableOutputOfAForeignAgentIsReported(t *testing.T) {
	t.Parallel()
	_, c := newForeignAgent(t)
	_, err := c.Setup(t.Context(), &agent.SetupRequest{})
	require.NoError(t, err)
	out := drivertest.NewOutput()
	res, err := c.Run(t.Context(), script("unread", "echo hello"), out)
	require.NoError(t, err)
	assert.Zero(t, res.ExitCode)
	assert.Equal(t, "\n(the rest of the step's output could not be read from the agent: Step has not started)\n", out.String())
}

// docs/protocol.md, section 5: the meanings of exit code 255.
func TestTheEndsOfStepsAtAForeignAgent(t *testing.T) {
	t.Parallel()
	_, c := newForeignAgent(t)
	_, err := c.Setup(t.Context(), &agent.SetupRequest{})
	require.NoError(t, err)
	_, err = c.Run(t.Context(), script("begun", "exit 96"), io.Discard)
	require.ErrorContains(t, err, "cannot start it", "an error is no success, whatever the exit code")
	_, err = c.Run(t.Context(), script("open", "exit 95"), io.Discard)
	require.ErrorContains(t, err, "does not report the end of the step")
	_, err = c.Run(t.Context(), script("late", "exit 99"), io.Discard)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, `step "late"`)
	res, err := c.Run(t.Context(), script("oom", "exit 98"), io.Discard)
	require.NoError(t, err)
	assert.True(t, res.OOMKilled)
	assert.Equal(t, 255, res.ExitCode)
	_, err = c.Run(t.Context(), script("signal", "exit 94"), io.Discard)
	require.EqualError(t, err, `step "signal": signal: killed`, "-1 is no exit code")
	_, err = c.Run(t.Context(), script("image", "exit 97"), io.Discard)
	require.ErrorContains(t, err, "cannot find the image")
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	res, err = c.Run(t.Context(), script("own", "exit 255"), io.Discard)
	require.NoError(t, err)
	assert.Equal(t, 255, res.ExitCode)
}

// docs/protocol.md, section 5: a foreign agent cannot stop a step, so the client does not wait for
// that. A detached step is answered at once. A step that the agent reports itself is not polled.
func TestTheClientDoesNotWaitForAStopAtAForeignAgent(t *testing.T) {
	t.Parallel()
	f, c := newForeignAgent(t)
	_, err := c.Setup(t.Context(), &agent.SetupRequest{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = c.Run(ctx, script("long", "until [ -e /tmp/end ]; do sleep 0.1; done"), io.Discard)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, os.MkdirAll(filepath.Join(f.dir, "tmp"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "tmp", "end"), nil, 0o600)) // the step runs until now

	service, out := script("service", "echo up"), drivertest.NewOutput()
	service.Detach = true
	res, follower, err := c.Start(t.Context(), service, out)
	require.NoError(t, err)
	assert.True(t, res.Detached)
	out.WaitFor(t, "up\n")
	follower.Stop()

	reported := script("reported", "true")
	reported.StageRuntimeID, reported.StepStatus = "sr", &stage.StepStatus{TaskID: "t"}
	res, follower, err = c.Start(t.Context(), reported, drivertest.NewOutput())
	require.NoError(t, err)
	assert.True(t, res.Detached)
	follower.Stop()
	assert.Zero(t, f.polls["reported"])
	require.ErrorContains(t, c.Stop(t.Context(), "long"), "cannot stop a step")
}

// Rule C6: an answer that is not valid is an error with an excerpt.
func TestAnInvalidAnswerIsAnError(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz":
			if asked.Add(1) == 1 {
				_, _ = io.WriteString(w, `<html>`)
				return
			}
			_, _ = io.WriteString(w, `{"ok":true}`)
		case "/setup":
			w.WriteHeader(http.StatusInternalServerError) // with an empty body
		case "/destroy":
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write(bytes.Repeat([]byte("x"), 10_000))
		case "/suspend":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}
	}))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c := agent.NewClient(server.URL, transport)
	_, err := c.Health(t.Context())
	require.ErrorContains(t, err, "cannot decode")
	_, err = c.Setup(t.Context(), &agent.SetupRequest{})
	require.ErrorContains(t, err, "500 Internal Server Error")
	err = c.Destroy(t.Context(), &agent.DestroyRequest{})
	require.ErrorContains(t, err, "xxx")
	assert.Less(t, len(err.Error()), 1000)
	require.ErrorContains(t, c.Suspend(t.Context()), "307")
}
