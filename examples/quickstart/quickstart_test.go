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

// Rule X1: the built-in pipeline succeeds, with its container steps.
func TestTheBuiltInPipelineSucceeds(t *testing.T) {
	testbed.Docker(t)
	temp(t)
	out := &screen{}
	ok, err := run(t.Context(), out, "", false, nil)
	require.NoError(t, err)
	assert.True(t, ok, out)
	for _, want := range []string{
		"compiling parser", "packaging the release build", "checksum=", "the token is ******", "and hello from the next one",
	} {
		assert.Contains(t, out.String(), want)
	}
	assert.NotContains(t, out.String(), "not-a-real-token")
	assert.NotContains(t, out.String(), "LEFT OUT")
}

// Rule X1: without an engine the host steps run, and the program prints which steps it skips.
func TestWithoutAnEngineHostStepsRun(t *testing.T) {
	temp(t)
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "no-engine.sock"))
	out := &screen{}
	ok, err := run(t.Context(), out, "", false, nil)
	require.NoError(t, err)
	assert.True(t, ok, out)
	assert.Contains(t, out.String(), "container steps are LEFT OUT")
	assert.Contains(t, out.String(), "packaging the release build")
}

// Rule X1: the program returns the pipeline's result and prints the step that failed.
func TestAStepThatFailsEndsThePipeline(t *testing.T) {
	temp(t)
	out := &screen{}
	ok, err := run(t.Context(), out, write(t, `
stages:
  - name: first
    steps:
      - {name: good, run: "echo fine"}
      - {name: bad, run: "echo broken >&2; exit 7"}
      - {name: after, run: "echo never"}
  - name: second
    steps: [{name: also never, run: "echo never"}]
`), false, nil)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Contains(t, out.String(), "| broken")
	assert.Contains(t, out.String(), "exit code 7")
	assert.Regexp(t, `after\s+SKIPPED`, out.String())
	assert.Regexp(t, `second\s+NOT RUN`, out.String())
	assert.NotContains(t, out.String(), "| never")
}

// Rules P5, T7: the first interrupt finishes the running stage, the second one aborts it.
func TestTheFirstInterruptFinishesAndTheSecondAborts(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		times  int
		want   string
	}{
		"one finishes": {"echo begun; sleep 1; echo finished", 1, `one\s+SUCCESS`},
		"two abort":    {"echo begun; sleep 600; echo finished", 2, `one\s+ABORTED`},
	} {
		t.Run(name, func(t *testing.T) {
			temp(t)
			signals := make(chan os.Signal, 2)
			out := &screen{}
			out.seen = func(line string) {
				if strings.Contains(line, "| begun") {
					for range tc.times {
						signals <- syscall.SIGINT
					}
				}
			}
			ok, err := run(t.Context(), out, write(t, `
stages:
  - name: one
    steps: [{name: long, run: "`+tc.script+`"}]
  - name: two
    steps: [{name: never, run: "echo never"}]
`), false, signals)
			require.NoError(t, err)
			assert.False(t, ok, "an interrupted pipeline has not succeeded")
			assert.Regexp(t, tc.want, out.String())
			assert.Regexp(t, `two\s+NOT RUN`, out.String())
			assert.Equal(t, tc.times == 1, strings.Contains(out.String(), "| finished"))
		})
	}
}

// Rule P5: after an interrupt before the first stage no stage begins.
func TestAnInterruptBeforeTheFirstStage(t *testing.T) {
	temp(t)
	signals := make(chan os.Signal, 2)
	signals <- syscall.SIGINT
	out := &screen{}
	ok, err := run(t.Context(), out, write(t, `stages: [{steps: [{run: "echo never"}]}]`), false, signals)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Regexp(t, `stage 1\s+NOT RUN`, out.String())
	assert.NotContains(t, out.String(), "| never")
}

// Rule X1: if the reader of the output ends early, as with "| head -1", the program still runs the whole pipeline
// and cleans up.
func TestAReaderThatGoesAwayStopsNothing(t *testing.T) {
	temp(t)
	ran := filepath.Join(t.TempDir(), "ran")
	program := exec.CommandContext(t.Context(), os.Args[0], "-f", write(t, `
stages:
  - name: one
    steps:
      - {name: talk, run: "echo begun; sleep 0.3; echo more"}
      - {name: after, run: "echo > `+ran+`"}
`))
	program.Env = append(os.Environ(), asProgram+"=1")
	out, err := program.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, program.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.NoError(t, program.Wait())
	assert.FileExists(t, ran)
}

func TestAPipelineThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"stages: []":                             "no stages",
		"stages: [{steps: [{name: x}]}]":         "either run, a script, or command",
		"stages: [{steps: [{name: x, rnu: y}]}]": "rnu",
		"stages: {":                              "reading the pipeline",
	} {
		_, err := run(t.Context(), io.Discard, write(t, text), false, nil)
		require.ErrorContains(t, err, want)
	}
	_, err := run(t.Context(), io.Discard, "missing.yaml", false, nil)
	require.ErrorContains(t, err, "missing.yaml")
}
