package transaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Rules T1, T2: a stage holds its slot from init to cleanup, and no resource is left.
func TestAStageHoldsItsSlotFromInitToCleanup(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	s := newStages(t, w)
	assert.Equal(t, stage.Success, statusOf(s.init("tx")))
	assert.Equal(t, stage.Success, statusOf(s.execute("tx", "one")))
	assert.Equal(t, stage.Success, statusOf(s.execute("tx", "two")))
	assert.Equal(t, 1, s.slots.Used())
	assert.Equal(t, []string{"network tx", "process tx/one", "process tx/two"}, w.left())
	assert.Len(t, s.records(), 1)

	assert.Equal(t, stage.Success, statusOf(s.cleanup("tx")))
	assert.Zero(t, s.slots.Used())
	assert.Empty(t, w.left())
	assert.Empty(t, s.records())
	assert.Zero(t, s.Open())
}

// Rule T1: the transaction keeps the slot that the poller took.
func TestTheSlotOfTheInitTaskIsKept(t *testing.T) {
	t.Parallel()
	s := newStages(t, newFakeDriver())
	slot, _ := s.slots.Take()
	ctx := capacity.NewContext(t.Context(), slot)
	s.run(ctx, "CI_DOCKER_INITIALIZE_TASK", stage.InitRequest{GroupID: "tx"})
	slot.Drop() // as the poller does
	assert.Equal(t, 1, s.slots.Used())
	s.run(t.Context(), "CI_DOCKER_CLEANUP_TASK", stage.CleanupRequest{GroupID: "tx"})
	assert.Zero(t, s.slots.Used())
}

// Rule T1: a repeated init is the same transaction, because the first answer may have been
// lost.
func TestARepeatedInitIsAnsweredAgainAndDoneOnce(t *testing.T) {
	t.Parallel()
	var inits int
	w := newFakeDriver()
	w.onInit = func(context.Context, *driver.Environment) error { inits++; return nil }
	s := newStages(t, w)
	for range 3 {
		assert.Equal(t, stage.Success, statusOf(s.init("tx")))
	}
	assert.Equal(t, 1, inits)
	assert.Equal(t, 1, s.slots.Used())
}

// Rule T3: a failed init removes its resources and frees its slot.
func TestAFailedInitCleansItselfUp(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	w.onInit = func(context.Context, *driver.Environment) error { return errors.New("no disk, no init") }
	s := newStages(t, w)
	r := s.init("tx")
	assert.Equal(t, stage.Failure, statusOf(r))
	assert.Contains(t, string(r.Data), "no disk, no init")
	assert.Empty(t, w.left())
	assert.Empty(t, s.records())
	assert.Zero(t, s.slots.Used())
	assert.Equal(t, task.Failed, s.execute("tx", "one").Code)
}

// Rules T3, T4: a cleanup may come before, without and after an init, and again. A late init
// or execute is refused with the reason.
func TestACleanupMayComeAtAnyTimeAndRefusesLaterTasks(t *testing.T) {
	t.Parallel()
	s := newStages(t, newFakeDriver())
	assert.Equal(t, stage.Success, statusOf(s.cleanup("early")))
	r := s.init("early")
	assert.Equal(t, task.Failed, r.Code)
	assert.Contains(t, r.Error, "cleaned up already")

	s.init("tx")
	for range 2 {
		assert.Equal(t, stage.Success, statusOf(s.cleanup("tx")))
	}
	r = s.execute("tx", "late")
	assert.Equal(t, task.Failed, r.Code)
	assert.Contains(t, r.Error, "cleaned up already")

	r = s.execute("foreign", "one")
	assert.Equal(t, task.Failed, r.Code)
	assert.Contains(t, r.Error, "does not own transaction foreign")
	assert.Contains(t, s.run(t.Context(), "local_execute", stage.ExecuteRequest{}).Error, "names no transaction")
	assert.Contains(t, s.run(t.Context(), "local_cleanup", stage.CleanupRequest{}).Error, "names no transaction")
	assert.Contains(t, s.run(t.Context(), "local_init", stage.InitRequest{}).Error, "names no transaction")
	assert.Zero(t, s.slots.Used())
}

// Rules T3, T7: a cleanup stops running steps, waits for them, and only then removes their
// resources. A second cleanup waits for the first.
func TestACleanupStopsRunningSteps(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	running, ended := make(chan struct{}), make(chan struct{})
	w.onExecute = func(ctx context.Context, _ *driver.Environment, _ *driver.Step, _ io.Writer) (*driver.Result, error) {
		close(running)
		<-ctx.Done()
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.Empty(t, w.cleaned, "nothing is removed under a running step")
		close(ended)
		return nil, ctx.Err()
	}
	s := newStages(t, w)
	s.init("tx")
	var wg sync.WaitGroup
	wg.Go(func() {
		r := s.execute("tx", "one")
		assert.Equal(t, stage.Failure, statusOf(r))
		assert.Contains(t, string(r.Data), "being cleaned up")
	})
	<-running
	for range 2 {
		wg.Go(func() { assert.Equal(t, stage.Success, statusOf(s.cleanup("tx"))) })
	}
	<-ended
	wg.Wait()
	assert.Len(t, w.cleaned, 1)
	assert.Empty(t, w.left())
}

// Rule T3: a cleanup during the init ends the init.
func TestACleanupDuringTheInitEndsIt(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	running := make(chan struct{})
	w.onInit = func(ctx context.Context, _ *driver.Environment) error {
		close(running)
		<-ctx.Done()
		return ctx.Err()
	}
	s := newStages(t, w)
	var wg sync.WaitGroup
	wg.Go(func() { assert.Equal(t, stage.Failure, statusOf(s.init("tx"))) })
	<-running
	assert.Equal(t, stage.Success, statusOf(s.cleanup("tx")))
	wg.Wait()
	assert.Empty(t, w.left())
	assert.Zero(t, s.slots.Used())
}

// Rule T3: a resource that cannot be removed is reported, stays in the record, and is removed
// later.
func TestAResourceThatCannotBeRemovedIsReportedAndTriedAgain(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	w.stubborn = func(r driver.Resource) error {
		if r.Kind == "network" {
			return errors.New("a process is attached")
		}
		return nil
	}
	s := newStages(t, w)
	s.init("tx")
	s.execute("tx", "one")
	r := s.cleanup("tx")
	assert.Equal(t, stage.Failure, statusOf(r))
	assert.Contains(t, string(r.Data), "a process is attached")
	assert.Zero(t, s.slots.Used(), "the stage is over")
	require.Len(t, s.records(), 1)
	require.NoError(t, s.Close(t.Context()))

	again := reopenStages(t, w, s.ledger, transaction.WithInFlight(0))
	require.ErrorContains(t, again.Recover(t.Context()), "a process is attached")
	w.mu.Lock()
	w.stubborn = nil
	last := w.cleaned[len(w.cleaned)-1]
	w.mu.Unlock()
	assert.Equal(t, []driver.Resource{{Kind: "network", ID: "tx"}}, last, "a removed resource is not tried again")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { again.Maintain(ctx, time.Millisecond) })
	require.Eventually(t, func() bool { return len(again.records()) == 0 }, time.Minute, time.Millisecond)
	cancel()
	wg.Wait()
	assert.Empty(t, w.left())
}

// Rule T6: a transaction without activity during its lease is cleaned up. A running step
// counts as activity.
func TestALeaseEnds(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	release := make(chan struct{})
	w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
		<-release
		return &driver.Result{}, nil
	}
	var mu sync.Mutex
	now := time.Now()
	s := newStages(t, w, transaction.WithLease(time.Hour), transaction.WithClock(func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}))
	s.init("idle")
	s.init("busy")
	var wg sync.WaitGroup
	wg.Go(func() { s.execute("busy", "one") })
	require.Eventually(t, func() bool { return slices.Contains(w.left(), "process busy/one") }, 10*time.Second, time.Millisecond)
	mu.Lock()
	now = now.Add(2 * time.Hour)
	mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() { s.Maintain(ctx, time.Millisecond) })
	require.Eventually(t, func() bool { return s.Open() == 1 }, 10*time.Second, time.Millisecond)
	assert.Contains(t, w.left(), "network busy")
	cancel()
	close(release)
	wg.Wait()
}

// Rule S3: no text of a step contains a secret. Rule S5: nor does the record.
func TestSecretsAreMaskedAndNotRecorded(t *testing.T) {
	t.Parallel()
	const secret = "not-a-real-secret"
	w := newFakeDriver()
	w.onExecute = func(_ context.Context, env *driver.Environment, _ *driver.Step, out io.Writer) (*driver.Result, error) {
		for _, c := range "the token is " + env.Envs["TOKEN"] + "\n" {
			fmt.Fprint(out, string(c)) //nolint:errcheck // a log
		}
		return &driver.Result{
			Outputs: map[string]string{"plain": "x" + secret}, Secrets: map[string]string{"hidden": secret},
		}, errors.New("cannot use " + secret)
	}
	s := newStages(t, w)
	s.run(t.Context(), "local_init", stage.InitRequest{
		GroupID: "tx", Envs: map[string]string{"TOKEN": secret}, Secrets: []string{secret},
	})
	record, err := os.ReadFile(s.records()[0])
	require.NoError(t, err)
	assert.NotContains(t, string(record), secret)

	var got stage.ExecuteResponse
	require.NoError(t, json.Unmarshal(s.execute("tx", "one").Data, &got))
	assert.Equal(t, "cannot use ******", got.ErrorMessage)
	assert.Equal(t, []stage.Output{
		{Key: "plain", Value: "x******", Type: stage.OutputString}, {Key: "hidden", Value: secret, Type: stage.OutputSecret},
	}, got.Outputs)
	text, closed := s.logs.get("one")
	assert.Equal(t, "the token is ******\ncannot use ******\n", text)
	assert.True(t, closed)
}

// Rules T5, T8: exports of a step are in the environment of later steps of the same
// transaction, and of no other transaction.
func TestExportsReachLaterStepsOfTheSameTransaction(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	seen := map[string]map[string]string{}
	w.onExecute = func(_ context.Context, env *driver.Environment, s *driver.Step, _ io.Writer) (*driver.Result, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		seen[env.ID+s.ID] = env.Envs
		return &driver.Result{Env: map[string]string{"STEP": env.ID + s.ID}}, nil
	}
	s := newStages(t, w)
	for _, id := range []string{"a", "b"} {
		s.init(id)
	}
	for _, step := range []string{"1", "2"} {
		for _, id := range []string{"a", "b"} {
			s.execute(id, step)
		}
	}
	assert.Empty(t, seen["a1"])
	assert.Equal(t, map[string]string{"STEP": "a1"}, seen["a2"])
	assert.Equal(t, map[string]string{"STEP": "b1"}, seen["b2"])
}

// Rule D3: the answer shows how a step ended.
func TestTheAnswerSaysHowAStepEnded(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	ends := map[string]func() (*driver.Result, error){
		"fails":   func() (*driver.Result, error) { return &driver.Result{ExitCode: 3}, nil },
		"memory":  func() (*driver.Result, error) { return &driver.Result{ExitCode: 137, OOMKilled: true}, nil },
		"timeout": func() (*driver.Result, error) { return nil, fmt.Errorf("too slow: %w", context.DeadlineExceeded) },
		"infra":   func() (*driver.Result, error) { return nil, errors.New("no engine") },
	}
	w.onExecute = func(_ context.Context, _ *driver.Environment, s *driver.Step, _ io.Writer) (*driver.Result, error) {
		return ends[s.ID]()
	}
	s := newStages(t, w)
	s.init("tx")
	for step, want := range map[string]string{
		"fails":   `{"command_execution_status":"FAILURE","error_message":"exit code 3","exit_code":3}`,
		"memory":  `{"command_execution_status":"FAILURE","error_message":"the step ran out of memory (exit code 137)","exit_code":137,"oom_killed":true}`,
		"timeout": `{"command_execution_status":"TIMEOUT","error_message":"too slow: context deadline exceeded"}`,
		"infra":   `{"command_execution_status":"FAILURE","error_message":"no engine"}`,
	} {
		r := s.execute("tx", step)
		assert.Equal(t, task.OK, r.Code, step)
		assert.JSONEq(t, want, string(r.Data), step)
	}
}

// A detached step's log stays open until the transaction ends.
func TestTheLogOfADetachedStepStaysOpen(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	var background io.Writer
	w.onExecute = func(_ context.Context, _ *driver.Environment, _ *driver.Step, out io.Writer) (*driver.Result, error) {
		background = out
		return &driver.Result{Detached: true}, nil
	}
	s := newStages(t, w)
	s.init("tx")
	s.execute("tx", "redis")
	_, _ = io.WriteString(background, "ready to accept connections\n")
	_, closed := s.logs.get("redis")
	assert.False(t, closed)
	s.cleanup("tx")
	text, closed := s.logs.get("redis")
	assert.Equal(t, "ready to accept connections\n", text)
	assert.True(t, closed)
}

// Rule P5: Close ends open transactions and refuses new stages with an error that lets the
// manager choose another delegate.
func TestCloseEndsEveryTransaction(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	s := newStages(t, w)
	for i := range 5 {
		s.init(fmt.Sprint("tx", i))
	}
	require.NoError(t, s.Close(t.Context()))
	assert.Empty(t, w.left())
	assert.Zero(t, s.slots.Used())
	assert.Equal(t, task.RetryOnOtherDelegate, s.init("late").Code)
}
