package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/internal/testbed"
)

// asProgram makes the test's binary the program.
const asProgram = "DLITE_TEST_QUICKSTART"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// screen collects the printed lines and calls back for each.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
	seen func(line string)
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen != nil {
		s.seen(string(b))
	}
	return s.text.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// temp sets an own directory for temporary files, and checks that it is empty at the end.
func temp(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, left, "left behind in the temporary folder")
	})
}

func write(t *testing.T, pipeline string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pipeline.yaml")
	require.NoError(t, os.WriteFile(file, []byte(pipeline), 0o600))
	return file
}

// pipelineOf returns a pipeline with one stage for each list of steps.
func pipelineOf(stages ...string) string {
	text := "pipeline:\n  identifier: p\n  name: p\n  stages:\n"
	for i, steps := range stages {
		id := string(rune('a' + i))
		text += "    - stage: {identifier: " + id + ", name: " + id + ", type: CI, spec: {platform: {os: Linux, arch: Amd64}, " +
			"runtime: {type: Docker, spec: {}}, execution: {steps: [" + steps + "]}}}\n"
	}
	return text
}

func step(id, script string) string {
	return "{step: {identifier: " + id + ", name: " + id + ", type: Run, spec: {command: '" + script + "'}}}"
}

// Rule X1: the built-in pipeline succeeds, with its container steps.
func TestTheBuiltInPipelineSucceeds(t *testing.T) {
	testbed.Docker(t)
	temp(t)
	out := &screen{}
	ok, err := run(t.Context(), out, "", false, nil)
	require.NoError(t, err)
	assert.True(t, ok, out)
	for _, want := range []string{
		"compiling parser", "packaging the release build", "CHECKSUM=", "the build has the checksum", "the service answers", "the token is ******",
		"debug skipped", "| hello from a container",
	} {
		assert.Contains(t, out.String(), want)
	}
	assert.NotContains(t, out.String(), "not-a-real-token")
	assert.NotContains(t, out.String(), "LEFT OUT")
}

// Rule X1: without an engine the host steps run, and the program prints that it leaves out the others.
func TestWithoutAnEngineHostStepsRun(t *testing.T) {
	temp(t)
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "no-engine.sock"))
	out := &screen{}
	ok, err := run(t.Context(), out, "", false, nil)
	require.NoError(t, err)
	assert.True(t, ok, out)
	assert.Contains(t, out.String(), "container steps are LEFT OUT")
	assert.Contains(t, out.String(), "packaging the release build")
	assert.Regexp(t, `container\s+SKIPPED`, out.String())
}

// Rule X1: the program returns the result of the run and prints the step that failed.
func TestAStepThatFailsEndsThePipeline(t *testing.T) {
	temp(t)
	out := &screen{}
	file := write(t, pipelineOf(
		strings.Join([]string{step("good", "echo fine"), step("bad", "echo broken >&2; exit 7"), step("after", "echo never")}, ","), step("also", "echo never"),
	))
	ok, err := run(t.Context(), out, file, false, nil)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Contains(t, out.String(), "| broken")
	assert.Contains(t, out.String(), "exit code 7")
	assert.Regexp(t, `after\s+SKIPPED`, out.String())
	assert.Regexp(t, `(?m)^b\s+SKIPPED`, out.String())
	assert.NotContains(t, out.String(), "| never")
}

// Rules P5, T7: the first interrupt aborts the run, and the second one does not wait for its end.
func TestAnInterruptAbortsTheRun(t *testing.T) {
	for name, times := range map[string]int{"one": 1, "two": 2} {
		t.Run(name, func(t *testing.T) {
			temp(t)
			signals := make(chan os.Signal, 2)
			out := &screen{}
			out.seen = func(line string) {
				if strings.Contains(line, "| begun") {
					for range times {
						signals <- syscall.SIGINT
					}
				}
			}
			ok, err := run(t.Context(), out, write(t, pipelineOf(step("long", "echo begun; sleep 600; echo finished"), step("next", "echo never"))), false, signals)
			require.NoError(t, err)
			assert.False(t, ok, "an interrupted run has not succeeded")
			if times == 1 {
				assert.Regexp(t, `long\s+ABORTED`, out.String())
			}
			assert.NotContains(t, out.String(), "| finished")
			assert.NotContains(t, out.String(), "| never")
		})
	}
}

// Rule P5: an interrupt before the first stage aborts the run.
func TestAnInterruptBeforeTheFirstStage(t *testing.T) {
	temp(t)
	signals := make(chan os.Signal, 2)
	signals <- syscall.SIGINT
	out := &screen{}
	ok, err := run(t.Context(), out, write(t, pipelineOf(step("long", "sleep 600"), step("next", "echo never"))), false, signals)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.NotContains(t, out.String(), "| never")
}

// Rule X1: if the reader of the output ends early, as with "| head -1", the program still runs the whole pipeline
// and cleans up.
func TestAReaderThatGoesAwayStopsNothing(t *testing.T) {
	temp(t)
	program := exec.CommandContext(t.Context(), os.Args[0], "-f", write(t, pipelineOf(step("talk", "echo begun; sleep 0.3; echo more")+","+step("after", "exit 0"))))
	program.Env = append(os.Environ(), asProgram+"=1")
	out, err := program.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, program.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.NoError(t, program.Wait(), "the exit code is that of the run")
}

func TestAPipelineThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		pipelineOf(""): "step", "stages: []": "the key pipeline is missing", pipelineOf("{step: {identifier: x, name: x, type: Rnu}}"): "Rnu",
		"pipeline: {": "error",
	} {
		_, err := run(t.Context(), io.Discard, write(t, text), false, nil)
		require.ErrorContains(t, err, want)
	}
	_, err := run(t.Context(), io.Discard, "missing.yaml", false, nil)
	require.ErrorContains(t, err, "missing.yaml")
}
