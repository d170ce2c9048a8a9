package endtoend_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// mortal is a bundled program that is killed and started again.
type mortal struct {
	t    *testing.T
	path string
	args []string
	cmd  *exec.Cmd
}

// start starts the program. All its processes write to one log.
func (m *mortal) start() {
	log, err := os.OpenFile(m.path+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(m.t, err)
	defer func() { _ = log.Close() }() // the process has its own descriptor
	m.cmd = program(m.t, m.path, m.args...)
	m.cmd.Stdout, m.cmd.Stderr = log, log
	require.NoError(m.t, m.cmd.Start())
}

// restart kills the program with SIGKILL and starts it again.
func (m *mortal) restart() {
	require.NoError(m.t, m.cmd.Process.Kill())
	require.Error(m.t, m.cmd.Wait())
	m.start()
}

// stop interrupts the program, which must end without an error.
func (m *mortal) stop() {
	assert.NoError(m.t, m.cmd.Process.Signal(os.Interrupt))
	late := time.AfterFunc(time.Minute, func() { _ = m.cmd.Process.Kill() })
	assert.NoError(m.t, m.cmd.Wait(), m.path)
	late.Stop()
}

// mortals starts both programs of a rig.
func (s *rig) mortals(t *testing.T) (m, d *mortal) {
	t.Helper()
	m = &mortal{t: t, path: filepath.Join(s.dir, "manager"), args: s.serve}
	d = &mortal{t: t, path: filepath.Join(s.dir, "delegate"), args: []string{"server", "--env-file", s.config()}}
	m.start()
	d.start()
	return m, d
}

// ask calls the manager until it answers, also while it is restarted.
func (s *rig) ask(ctx context.Context, method, path string, body []byte, into any) error {
	for {
		status, answer, err := s.try(ctx, method, path, string(body))
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", path, ctx.Err())
		case err == nil && status < 300:
			return json.Unmarshal(answer, into)
		case err == nil && status < 500 && status != http.StatusTooManyRequests:
			return fmt.Errorf("%s %s: %d %s", method, path, status, answer)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond): // the manager is away
		}
	}
}

func (s *rig) try(ctx context.Context, method, path, body string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.address+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12}}}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}

// mortalRun is a pipeline whose steps write a line to a file of each attempt. The step flaky fails once. A step that a kill
// of the delegate has interrupted is tried again.
const mortalRun = `
pipeline:
  identifier: mortal
  name: mortal
  stages:
    - stage:
        identifier: build
        name: build
        type: CI
        failureStrategies: &again [{onFailure: {errors: [AllErrors], action: {type: Retry, spec: {retryCount: 9, retryIntervals: [1s], onRetryFailure: {action: {type: MarkAsFailure}}}}}}]
        spec:
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: first, name: first, type: Run, spec: {command: "echo $$ >> DIR.first.COUNT; sleep 0.2; export WORD=seen", outputVariables: [{name: WORD}]}}
              - parallel:
                  - step: {identifier: left, name: left, type: Run, spec: {command: "echo $W >> DIR.left.COUNT; sleep 0.3", envVariables: {W: <+steps.first.output.outputVariables.WORD>}}}
                  - step: {identifier: right, name: right, type: Run, spec: {command: "echo $$ >> DIR.right.COUNT"}}
              - step: {identifier: flaky, name: flaky, type: Run, spec: {command: "echo $$ >> DIR.flaky.COUNT; test <+step.retryCount> != 0"}}
    - stage:
        identifier: last
        name: last
        type: CI
        failureStrategies: *again
        spec: {runtime: {type: Docker, spec: {}}, execution: {steps: [step: {identifier: last, name: last, type: Run, spec: {command: "echo $$ >> DIR.last.COUNT"}}]}}
`

// runKillsVariable is the environment variable for the number of kills.
const runKillsVariable = "DLITE_TEST_RUN_KILLS"

// Rules Q1, Q7, D6: the bundled manager, with its pipeline service, and the bundled delegate are killed at random
// instants and started again. Each run ends, each attempt of each step runs once at most, and nothing is left.
func TestRunsSurviveKillsOfTheBundledPrograms(t *testing.T) {
	t.Parallel()
	kills := 8
	if text := os.Getenv(runKillsVariable); text != "" {
		var err error
		kills, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	s := newRig(t, rigConfig{mortal: true, directLogs: true, settings: []string{"TRUSTED_STEPS=true", "MAX_STAGES=8", "CLEANUP_GRACE_PERIOD_SECONDS=1"}})
	m, d := s.mortals(t)
	effects := t.TempDir() // trusted steps can write to it
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute+time.Duration(kills)*5*time.Second)
	defer cancel()
	killing, stop := context.WithCancel(ctx)
	var ended []api.Run
	var mu sync.Mutex
	var running sync.WaitGroup
	for worker := range 4 { // runs follow one another as long as programs are killed
		running.Go(func() {
			for n := 0; killing.Err() == nil || n == 0; n++ {
				id := fmt.Sprintf("w%d-%d", worker, n)
				run, err := s.runToItsEnd(ctx, id, filepath.Join(effects, id))
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				ended = append(ended, run)
				mu.Unlock()
			}
		})
	}
	for i := range kills {
		select {
		case <-time.After(100*time.Millisecond + rand.N(1500*time.Millisecond)): //nolint:gosec // a random instant
		case <-ctx.Done():
		}
		if i%2 == 0 {
			m.restart()
		} else {
			d.restart()
		}
	}
	stop()
	running.Wait()
	statuses := map[string]int{}
	for i := range ended {
		statuses[ended[i].Status]++
		if ended[i].Status != "SUCCEEDED" {
			t.Logf("%s is %s: %s", ended[i].ID, ended[i].Status, ended[i].Reason)
		}
		checkMortalRun(t, &ended[i], filepath.Join(effects, ended[i].ID))
	}
	t.Logf("%d kills, %d runs: %v", kills, len(ended), statuses)
	assert.Equal(t, len(ended), statuses["SUCCEEDED"], "interrupted steps are tried again: %v", statuses)
	s.checkNothingIsLeft(ctx, t)
	d.stop()
	m.stop()
	assert.Empty(t, filesBelow(t, filepath.Join(s.dir, "work")), "left in the work folder")
	assert.Empty(t, testbed.CommandLines(s.dir), "processes that are left")
}

func (s *rig) runToItsEnd(ctx context.Context, id, effect string) (run api.Run, err error) {
	if err := s.startRun(ctx, id, effect); err != nil {
		return run, err
	}
	return s.awaitRun(ctx, id)
}

// startRun starts mortalRun. The names of the files of its steps begin with effect.
func (s *rig) startRun(ctx context.Context, id, effect string) error {
	body, err := json.Marshal(api.RunRequest{ID: id, YAML: strings.NewReplacer("DIR", effect, "COUNT", "<+stage.retryCount>-<+step.retryCount>").Replace(mortalRun)})
	if err != nil {
		return err
	}
	var run api.Run
	return s.ask(ctx, http.MethodPost, "/api/runs?accountId=acc", body, &run)
}

// awaitRun waits until a run has ended.
func (s *rig) awaitRun(ctx context.Context, id string) (run api.Run, err error) {
	for err == nil && run.EndedAt.IsZero() {
		var now api.Run
		err = s.ask(ctx, http.MethodGet, "/api/runs/"+id+"?wait=5&accountId=acc", nil, &now)
		run = now
	}
	return run, err
}

// checkMortalRun compares the steps of a run with the lines that their attempts have written.
func checkMortalRun(t *testing.T, run *api.Run, effect string) {
	t.Helper()
	stage := 0
	for i := range run.Nodes {
		n := &run.Nodes[i]
		if n.Kind == "stage" {
			stage = n.Retries
		}
		if n.Kind != "step" {
			continue
		}
		files, err := filepath.Glob(effect + "." + n.Identifier + ".*")
		require.NoError(t, err)
		assert.LessOrEqual(t, len(files), n.Attempt, "%s of %s:\n%s", n.Path, run.ID, reasons(*run))
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, 1, strings.Count(string(text), "\n"), "an attempt of %s of %s ran more than once: %s\n%s", n.Path, run.ID, filepath.Base(file), reasons(*run))
			if n.Identifier == "left" {
				assert.Equal(t, "seen\n", string(text), "the output of first")
			}
		}
		if n.Status == "SUCCEEDED" {
			assert.Contains(t, files, fmt.Sprintf("%s.%s.%d-%d", effect, n.Identifier, stage, n.Retries), "%s of %s succeeded, but did not run", n.Path, run.ID)
		}
	}
}

// checkNothingIsLeft waits until all stages of the manager have ended with their cleanup.
func (s *rig) checkNothingIsLeft(ctx context.Context, t *testing.T) {
	t.Helper()
	for {
		var list struct{ Delegates []api.Delegate }
		require.NoError(t, s.ask(ctx, http.MethodGet, "/api/delegates?accountId=acc", nil, &list))
		used := 0
		for _, d := range list.Delegates {
			used += d.Stages + d.Running
		}
		if used == 0 {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("delegates still have stages: %+v", list.Delegates)
		case <-time.After(50 * time.Millisecond):
		}
	}
	var list struct{ Stages []api.Stage }
	require.NoError(t, s.ask(ctx, http.MethodGet, "/api/stages?accountId=acc", nil, &list))
	for _, st := range list.Stages {
		assert.True(t, st.Status.Ended(), "%s is %s", st.ID, st.Status)
	}
}
