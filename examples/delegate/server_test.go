package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is the bundled delegate, configured by a file, with a manager.
type running struct {
	*clienttest.Server
	t       *testing.T
	pollers chan *poller.Poller // receives the poller when it has been made
	over    chan error
	workDir string
	config  config
}

func start(t *testing.T, extra string, signals ...os.Signal) *running {
	t.Helper()
	r := &running{
		Server: clienttest.NewServer(), t: t, pollers: make(chan *poller.Poller, 1), over: make(chan error, 1),
		workDir: filepath.Join(t.TempDir(), "work"),
	}
	t.Cleanup(r.Close)
	file := filepath.Join(t.TempDir(), "config.env")
	require.NoError(t, os.WriteFile(file, []byte(
		`ACCOUNT_ID="`+r.Account+`"
DELEGATE_TOKEN="`+r.Secret+`"
URL="`+r.URL+`"
HARNESS_NAME="e2e"
LOG_LEVEL=error
HTTP_BIND=off
WORK_DIR="`+r.workDir+`"
LEDGER_DIR="`+t.TempDir()+`"
`+extra), 0o600))
	cfg, warnings, err := loadConfig(file, os.Environ())
	require.NoError(t, err)
	require.Empty(t, warnings)
	r.config = cfg
	go func() {
		r.over <- serve(context.Background(), cfg, func(p *poller.Poller) { r.pollers <- p }, signals...)
	}()
	return r
}

// drain begins a drain.
func (r *running) drain() {
	p := <-r.pollers
	go func() { _ = p.Shutdown(context.Background()) }()
}

// signal sends a signal to this process. Tests run in parallel, so each has a
// signal of its own.
func (r *running) signal(s os.Signal) {
	self, err := os.FindProcess(os.Getpid())
	require.NoError(r.t, err)
	require.NoError(r.t, self.Signal(s))
}

// submit sends a payload as a task of a type.
func (r *running) submit(typ string, payload any) *clienttest.Submission {
	b, err := json.Marshal(payload)
	require.NoError(r.t, err)
	return r.Submit(&task.Task{Type: typ, Data: b})
}

// answer waits for the task's end and decodes it.
func answer[T any](r *running, s *clienttest.Submission) (out T) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	resp, err := s.Wait(ctx)
	require.NoError(r.t, err)
	require.Equal(r.t, task.OK, resp.Code, resp.Error)
	require.NoError(r.t, json.Unmarshal(resp.Data, &out))
	return out
}

func (r *running) init(id string) {
	got := answer[stage.InitResponse](r, r.submit("CI_DOCKER_INITIALIZE_TASK", stage.InitRequest{Network: stage.Network{ID: id}}))
	require.Equal(r.t, stage.Success, got.Status, got.ErrorMessage)
}

func script(id, step, text string) stage.ExecuteRequest {
	return stage.ExecuteRequest{GroupID: id, Step: stage.Step{
		ID: step, Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{text}},
	}}
}

func (r *running) cleanup(id string) *clienttest.Submission {
	return r.submit("CI_DOCKER_CLEANUP_TASK", stage.CleanupRequest{Network: id})
}

func (r *running) wait() error {
	select {
	case err := <-r.over:
		return err
	case <-time.After(30 * time.Second):
		require.FailNow(r.t, "the delegate does not end")
		return nil
	}
}

// Rules X2, T1: the bundled delegate runs a stage on the host. A signal ends it, and its work directory is empty
// afterwards.
func TestTheDelegateRunsAStageAndDrainsOnASignal(t *testing.T) {
	t.Parallel()
	r := start(t, "MAX_STAGES=1\n", drainSignal)
	r.init("tx")
	first := answer[stage.ExecuteResponse](r, r.submit("CI_DOCKER_EXECUTE_TASK",
		script("tx", "one", `echo "GREETING=hello" >> "$DRONE_ENV"; echo done > result`)))
	assert.Equal(t, stage.Success, first.Status, first.ErrorMessage)

	r.signal(drainSignal)
	// The stage is open, so the delegate still runs its steps.
	second := answer[stage.ExecuteResponse](r, r.submit("CI_DOCKER_EXECUTE_TASK",
		script("tx", "two", `echo "OUT=$GREETING $(cat result)" >> "$HARNESS_OUTPUT_FILE"; exit 3`)))
	assert.Equal(t, stage.Failure, second.Status)
	assert.Equal(t, 3, second.ExitCode)
	assert.Equal(t, map[string]string{"OUT": "hello done"}, second.OutputVars)
	answer[stage.CleanupResponse](r, r.cleanup("tx"))
	require.NoError(t, r.wait())
	left, err := os.ReadDir(r.workDir)
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.Equal(t, 1, r.Count("unregister"))
}

// Rules P5, T7: the second signal cancels running steps, and the delegate cleans up open stages.
func TestASecondSignalCancelsAndCleansUp(t *testing.T) {
	t.Parallel()
	r := start(t, "", cancelSignal)
	r.init("tx")
	step := r.submit("CI_DOCKER_EXECUTE_TASK", script("tx", "one", `echo $$ > "$HARNESS_SCRATCH_DIR/../pid"; sleep 600`))
	select {
	case <-step.Acquired():
	case <-time.After(30 * time.Second):
		require.FailNow(t, "the step does not start")
	}
	r.signal(cancelSignal)
	p := <-r.pollers
	require.Eventually(t, func() bool { return p.Health().Draining }, 30*time.Second, time.Millisecond)
	r.signal(cancelSignal)
	require.ErrorContains(t, r.wait(), "grace")
	left, err := os.ReadDir(r.workDir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// Rules T2, X2: a second delegate on the same ledger stops before it registers, because it cannot run any stage.
func TestASecondDelegateOnTheSameLedgerGivesUp(t *testing.T) {
	t.Parallel()
	r := start(t, "")
	r.init("tx")
	second := r.config
	second.Name = "second"
	require.ErrorIs(t, serve(t.Context(), second, nil), transaction.ErrLedger)
	assert.Equal(t, 1, r.Count("register"))
	answer[stage.CleanupResponse](r, r.cleanup("tx"))
	r.drain()
	require.NoError(t, r.wait())
}
