package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/examples/internal/storage"
	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager"
)

// asProgram makes the test's binary the program.
const asProgram = "DLITE_TEST_PIPELINES"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || len(os.Args) > 1 && os.Args[1] == storage.Name {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// execute runs the program and returns its exit code and its output.
func execute(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+emptyAtTheEnd(t))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// emptyAtTheEnd returns a directory that must be empty at the end of the test.
func emptyAtTheEnd(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, left, "left behind in the temporary folder")
	})
	return dir
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pipeline.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// pipelineOf returns a pipeline with one stage that has the steps.
func pipelineOf(steps ...string) string {
	return `
pipeline:
  identifier: p
  name: p
  stages:
    - stage:
        identifier: only
        name: only
        type: CI
        spec:
          platform: {os: Linux, arch: Amd64}
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
` + strings.Join(steps, "")
}

func step(id, spec string) string {
	return "              - step: {identifier: " + id + ", name: " + id + ", type: Run, spec: {" + spec + "}}\n"
}

func TestLintExitsWithOneForErrorsAndTwoForWrongUse(t *testing.T) {
	t.Parallel()
	code, out := execute(t, "lint", write(t, pipelineOf(step("a", "command: echo"))))
	assert.Equal(t, 0, code, out)
	code, out = execute(t, "lint", write(t, pipelineOf(step("a", "comand: echo, command: echo"))))
	assert.Equal(t, 0, code, "a warning is no error: %s", out)
	assert.Contains(t, out, "did you mean command?")
	assert.Regexp(t, `(?m)^ +\| +\^$`, out)
	code, out = execute(t, "lint", write(t, pipelineOf(step("a", "command: <+a + >"))))
	assert.Equal(t, 1, code, out)
	for _, args := range [][]string{{"lint"}, {"lint", "missing.yaml"}, {"lint", write(t, pipelineOf()), "-o", "xml"}, {"lnit"}} {
		code, out = execute(t, args...)
		assert.Equal(t, 2, code, "%v: %s", args, out)
	}
}

func TestLintWritesPositionsAsJSON(t *testing.T) {
	t.Parallel()
	code, out := execute(t, "lint", "-o", "json", write(t, pipelineOf(step("a", "comand: echo, command: echo"))))
	assert.Equal(t, 0, code, out)
	var result struct {
		Problems []struct {
			File, Code, Severity, Path string
			Line, Column               int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &result), out)
	require.Len(t, result.Problems, 1)
	p := result.Problems[0]
	assert.Equal(t, "unknown-key", p.Code)
	assert.Equal(t, "warning", p.Severity)
	assert.Equal(t, 15, p.Line)
	assert.Positive(t, p.Column)
	assert.True(t, strings.HasSuffix(p.File, "pipeline.yaml"), p.File)
}

func TestARunMasksItsSecretsAndPassesOutputsOn(t *testing.T) {
	t.Parallel()
	secrets := filepath.Join(t.TempDir(), "secrets")
	require.NoError(t, os.WriteFile(secrets, []byte("token=not-a-real-token\n"), 0o600))
	file := write(t, pipelineOf(
		step("a", `command: "echo token is $T; export V=<+pipeline.variables.v>-x", envVariables: {T: <+secrets.getValue("token")>}, outputVariables: [{name: V}]`),
		step("b", `command: "echo v is <+execution.steps.a.output.outputVariables.V> on <+codebase.branch>"`),
	)+"  variables: [{name: v, type: String, value: <+input>}]\n")
	code, out := execute(t, "run", file, "--secret-file", secrets, "--input", "v=1", "--branch", "main")
	assert.Equal(t, 0, code, out)
	assert.Contains(t, out, "token is ******")
	assert.NotContains(t, out, "not-a-real-token")
	assert.Contains(t, out, "v is 1-x on main")
}

func TestASecretThatWasNotGivenNamesTheFlag(t *testing.T) {
	t.Parallel()
	code, out := execute(t, "run", write(t, pipelineOf(step("a", `command: "true", envVariables: {T: <+secrets.getValue("token")>}`))))
	assert.Equal(t, 1, code, out)
	assert.Contains(t, out, `the secret "token" was not given: add it to the file of --secret-file`)
}

func TestAFailedRunExitsWithOneAndAWrongPipelineWithTwo(t *testing.T) {
	t.Parallel()
	code, out := execute(t, "run", write(t, pipelineOf(step("a", `command: "exit 3"`), step("b", "command: echo"))))
	assert.Equal(t, 1, code, out)
	assert.Contains(t, out, "exit code 3")
	assert.Regexp(t, `b\s+SKIPPED`, out)
	code, out = execute(t, "run", write(t, pipelineOf("              - step: {identifier: a, name: a, type: Rnu}\n")))
	assert.Equal(t, 2, code, out)
	assert.Contains(t, out, "did you mean Run?")
	assert.Regexp(t, `(?m)\| +\^$`, out)
	code, out = execute(t, "run", write(t, pipelineOf(step("a", "command: echo"))), "--stage", "olny")
	assert.Equal(t, 2, code, out)
	assert.Contains(t, out, `the pipeline has no stage "olny"`)
}

// signalOn sends a signal when a text is written.
type signalOn struct {
	mu      sync.Mutex
	text    bytes.Buffer
	when    string
	signals chan os.Signal
}

func (s *signalOn) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.when != "" && strings.Contains(string(b), s.when) {
		s.when = ""
		s.signals <- syscall.SIGINT
	}
	return s.text.Write(b)
}

func (s *signalOn) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func TestAnInterruptAbortsTheRunAndLeavesNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", emptyAtTheEnd(t))
	out := &signalOn{when: "| begun", signals: make(chan os.Signal, 1)}
	c := &runCommand{file: write(t, pipelineOf(step("long", `command: "echo begun; sleep 600"`), step("next", "command: echo never")))}
	ok, err := c.run(t.Context(), out, out.signals)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Regexp(t, `long\s+ABORTED`, out.String())
	assert.NotContains(t, out.String(), "| never")
}

// A delegate takes a stage if it is connected, and has the tags and the driver.
func TestExplainNamesTheDelegatesThatCouldTakeAStage(t *testing.T) {
	m, err := manager.New(manager.Config{Accounts: map[string]string{"a": fakeSecret}})
	require.NoError(t, err)
	server := httptest.NewServer(m)
	t.Cleanup(func() {
		assert.NoError(t, m.Close())
		server.Close()
	})
	c := &explainCommand{format: "text", url: server.URL, account: "a"}
	file := write(t, pipelineOf(step("a", "command: echo")))
	var out bytes.Buffer
	require.ErrorContains(t, c.explain(t.Context(), &out, file), "API_TOKEN")
	secret, err := token.ParseSecret(fakeSecret)
	require.NoError(t, err)
	bearer, err := secret.Issue("a", time.Now(), time.Hour)
	require.NoError(t, err)
	t.Setenv("API_TOKEN", bearer)
	require.ErrorContains(t, c.explain(t.Context(), &out, file), "has no delegate")
	d, err := client.New(server.URL, "a", fakeSecret)
	require.NoError(t, err)
	t.Cleanup(d.CloseIdleConnections)
	register := func(name string, types []string, tags ...string) {
		_, err := d.Register(t.Context(), &client.Registration{DelegateName: name, Tags: tags, SupportedTaskTypes: types})
		require.NoError(t, err)
	}
	register("mac", nil, "darwin", "arm64")
	register("pods", []string{"kubernetes_init", "kubernetes_execute", "kubernetes_cleanup"}, "linux", "amd64")
	require.NoError(t, c.explain(t.Context(), &out, file))
	assert.Contains(t, out.String(), "taken by: no delegate now\n    mac cannot: it lacks the tags linux, amd64\n    pods cannot: it does not run local stages\n")
	register("build-7", []string{"local_init", "local_execute", "local_cleanup"}, "Linux", "amd64")
	out.Reset()
	require.NoError(t, c.explain(t.Context(), &out, file))
	assert.Contains(t, out.String(), "    taken by: build-7\n")
	out.Reset()
	c.format = "json"
	require.NoError(t, c.explain(t.Context(), &out, file))
	assert.Contains(t, out.String(), `"delegates":{"pipeline.stages.only":[{"delegate":"mac","obstacle":"it lacks the tags linux, amd64"}`)
}

// The file testdata/explain.txt is the output. Set DLITE_TEST_WRITE to write it anew.
func TestExplainShowsEachDecision(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := &explainCommand{format: "text", outputs: listFlag{"version.VERSION=1.2"}, selection: selection{branch: "feature"}}
	require.NoError(t, c.explain(t.Context(), &out, "testdata/release.yaml"))
	const golden = "testdata/explain.txt"
	if os.Getenv("DLITE_TEST_WRITE") != "" {
		require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), out.String())
}

func TestExplainWritesThePayloadsAsJSON(t *testing.T) {
	t.Parallel()
	code, out := execute(t, "explain", "testdata/release.yaml", "-o", "json", "--output", "version.VERSION=2.0", "--branch", "main", "--input", "channel=beta")
	require.Equal(t, 0, code, out)
	var e struct {
		Plans map[string]struct {
			Step *struct{ Data json.RawMessage }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &e), out)
	push := e.Plans["pipeline.stages.publish.spec.execution.steps.push"].Step
	require.NotNil(t, push)
	assert.Contains(t, string(push.Data), "push to beta")
	require.NotNil(t, e.Plans["pipeline.stages.build.spec.execution.steps.sign"].Step)
}

func TestExplainExitsWithTwoForAnOutputThatNoStepHas(t *testing.T) {
	t.Parallel()
	code, out := execute(t, "explain", "testdata/release.yaml", "--output", "versions.VERSION=2.0")
	assert.Equal(t, 2, code, out)
	assert.Contains(t, out, "versions.VERSION")
	code, _ = execute(t, "explain", "testdata/release.yaml", "--output", "nonsense")
	assert.Equal(t, 2, code)
}

func TestTheChecksOfThisRepositoryHaveNoProblems(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"../../.harness/checks.yaml", "../quickstart/pipeline.yaml"} {
		code, out := execute(t, "lint", file)
		assert.Equal(t, 0, code, out)
		assert.Empty(t, out)
	}
	code, out := execute(t, "explain", "../../.harness/checks.yaml")
	assert.Equal(t, 0, code, out)
}

func TestTheSchemaIsJSON(t *testing.T) {
	t.Parallel()
	code, out := execute(t, "schema")
	assert.Equal(t, 0, code)
	assert.True(t, json.Valid([]byte(out)))
	assert.Contains(t, out, "failureStrategies")
}
