package transaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Rules P4, T3: a driver that panics fails its task only. The transaction ends normally and
// frees its slot.
func TestADriverThatPanicsFailsItsTaskAlone(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	w.onInit = func(_ context.Context, env *driver.Environment) error {
		if env.ID == "bad init" {
			panic("no init today")
		}
		return nil
	}
	w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
		panic("no step today")
	}
	s := newStages(t, w)
	r := s.init("bad init")
	assert.Equal(t, stage.Failure, statusOf(r))
	assert.Contains(t, string(r.Data), "no init today")
	assert.Equal(t, stage.Success, statusOf(s.cleanup("bad init")))
	assert.Zero(t, s.slots.Used())
	assert.Empty(t, w.left())

	s.init("tx")
	r = s.execute("tx", "one")
	assert.Equal(t, stage.Failure, statusOf(r))
	text, closed := s.logs.get("one")
	assert.Contains(t, text, "no step today")
	assert.True(t, closed)

	w.stubborn = func(driver.Resource) error { panic("no cleanup today") }
	r = s.cleanup("tx")
	assert.Equal(t, stage.Failure, statusOf(r))
	assert.Contains(t, string(r.Data), "no cleanup today")
	assert.Zero(t, s.slots.Used())
	assert.Len(t, s.records(), 1)
}

// Rule D5: a step that loses its outputs fails and gives the reason. If the step itself
// failed, that reason comes first.
func TestAStepThatLosesItsOutputsHasFailed(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	res := driver.Result{Lost: "the step's artifact file could not be read: hunter2-lost", Outputs: map[string]string{"k": "v"}}
	w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
		one := res
		return &one, nil
	}
	s := newStages(t, w)
	s.init("tx")
	execute := func() (r stage.ExecuteResponse) {
		answer := s.run(t.Context(), "local_execute", stage.ExecuteRequest{
			GroupID: "tx", Step: stage.Step{ID: "one", Secrets: []string{"hunter2-lost"}},
		})
		require.NoError(t, json.Unmarshal(answer.Data, &r))
		return r
	}
	r := execute()
	assert.Equal(t, stage.Failure, r.Status)
	assert.Contains(t, r.ErrorMessage, "the step's artifact file could not be read")
	assert.NotContains(t, r.ErrorMessage, "hunter2")
	assert.Equal(t, map[string]string{"k": "v"}, r.OutputVars, "the rest is handed on")
	res.ExitCode = 3
	assert.Equal(t, "exit code 3", execute().ErrorMessage)
}

// Rule S2: the password for an image's registry is a secret, even if the task does not declare
// it.
func TestRegistryPasswordsAreMasked(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	w.onExecute = func(_ context.Context, _ *driver.Environment, st *driver.Step, out io.Writer) (*driver.Result, error) {
		_, err := io.WriteString(out, "logging in with "+st.Auth.Password+"\n")
		return &driver.Result{}, err
	}
	s := newStages(t, w)
	s.init("tx")
	s.run(t.Context(), "local_execute", stage.ExecuteRequest{GroupID: "tx", Step: stage.Step{
		ID: "one", LogKey: "one", Auth: &stage.Auth{Username: "robot", Password: "not-a-real-password"},
	}})
	text, _ := s.logs.get("one")
	assert.Contains(t, text, "logging in with ")
	assert.NotContains(t, text, "not-a-real-password")
}

// Rules T3, T4: during the cleanup the transaction refuses tasks with that reason, and a
// repeated init too.
func TestTasksDuringTheCleanupAreRefused(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	cleaning, let := make(chan struct{}), make(chan struct{})
	w.stubborn = func(driver.Resource) error {
		close(cleaning)
		<-let
		return nil
	}
	s := newStages(t, w)
	s.init("tx")
	var wg sync.WaitGroup
	wg.Go(func() { assert.Equal(t, stage.Success, statusOf(s.cleanup("tx"))) })
	<-cleaning
	for _, r := range []*task.Response{s.init("tx"), s.execute("tx", "one")} {
		assert.Equal(t, task.Failed, r.Code)
		assert.Contains(t, r.Error, "being cleaned up")
	}
	close(let)
	wg.Wait()
}

// Rule T3: a repeated cleanup tries to remove the remaining resources again and reports the
// result.
func TestARepeatedCleanupTriesAgain(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	var stubborn atomic.Bool
	stubborn.Store(true)
	w.stubborn = func(driver.Resource) error {
		if stubborn.Load() {
			return errors.New("a process is attached")
		}
		return nil
	}
	s := newStages(t, w)
	s.init("tx")
	for range 2 {
		r := s.cleanup("tx")
		assert.Equal(t, stage.Failure, statusOf(r))
		assert.Contains(t, string(r.Data), "a process is attached")
	}
	stubborn.Store(false)
	assert.Equal(t, stage.Success, statusOf(s.cleanup("tx")))
	assert.Empty(t, w.left())
	assert.Empty(t, s.records())
	assert.Zero(t, s.slots.Used())
}

// careless is a driver whose cleanup returns any result that the test sets.
type careless struct {
	*fakeDriver
	cleanup func(context.Context, []driver.Resource) ([]driver.Resource, error)
}

func (c *careless) Cleanup(ctx context.Context, rs []driver.Resource) ([]driver.Resource, error) {
	if c.cleanup != nil {
		return c.cleanup(ctx, rs)
	}
	return c.fakeDriver.Cleanup(ctx, rs)
}

// The answer of a cleanup that succeeded contains the remarks of the driver, each once.
func TestTheAnswerOfACleanupHasTheRemarksOfTheDriver(t *testing.T) {
	t.Parallel()
	w := &careless{fakeDriver: newFakeDriver()}
	w.cleanup = func(ctx context.Context, rs []driver.Resource) ([]driver.Resource, error) {
		for range 2 {
			driver.Remark(ctx, "a process may have survived")
		}
		return w.fakeDriver.Cleanup(ctx, rs)
	}
	s := newStages(t, w.fakeDriver)
	s.Stages = transaction.New(w, transaction.WithLedger(s.ledger))
	s.init("tx")
	r := s.cleanup("tx")
	assert.Equal(t, stage.Success, statusOf(r))
	assert.JSONEq(t, `{"command_execution_status":"SUCCESS","error_message":"a process may have survived"}`, string(r.Data))
	assert.Empty(t, s.records())
	require.NoError(t, s.Close(t.Context()))
}

// Rule T3: a driver that breaks its contract loses no resource. An error that names no
// resource may mean that none was removed. A resource may remain without an error.
func TestACleanupThatIsUnclearKeepsTheRecord(t *testing.T) {
	t.Parallel()
	for name, cleanup := range map[string]func(context.Context, []driver.Resource) ([]driver.Resource, error){
		"an error alone": func(context.Context, []driver.Resource) ([]driver.Resource, error) {
			return nil, errors.New("no engine")
		},
		"a rest alone": func(_ context.Context, rs []driver.Resource) ([]driver.Resource, error) { return rs, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &careless{fakeDriver: newFakeDriver(), cleanup: cleanup}
			s := newStages(t, w.fakeDriver)
			s.Stages = transaction.New(w, transaction.WithLedger(s.ledger))
			s.init("tx")
			r := s.cleanup("tx")
			assert.Equal(t, stage.Failure, statusOf(r))
			assert.NotContains(t, string(r.Data), "%!w")
			require.NoError(t, s.Close(t.Context()))
			w.cleanup = nil
			s.Stages = transaction.New(w, transaction.WithLedger(s.ledger))
			require.NoError(t, s.Recover(t.Context()))
			assert.Empty(t, w.left())
			require.NoError(t, s.Close(t.Context()))
		})
	}
}

// Rules S3, S5: no error contains the data that a driver stores with a resource.
func TestAnErrorNamesResourcesAndNoMore(t *testing.T) {
	t.Parallel()
	const secret = "not-a-real-secret"
	w := newFakeDriver()
	s := newStages(t, w)
	s.init("tx")
	w.stubborn = func(driver.Resource) error { return errors.New("busy") }
	w.onInit = nil
	bad := &noter{fakeDriver: w, data: json.RawMessage(`{"password":"` + secret + `"}`)}
	s.Stages = transaction.New(bad, transaction.WithLedger(t.TempDir()))
	r := s.init("tx2")
	assert.Equal(t, stage.Success, statusOf(r))
	r = s.execute("tx2", "one")
	assert.Equal(t, stage.Failure, statusOf(r))
	assert.NotContains(t, string(r.Data), secret)
	r = s.cleanup("tx2")
	assert.Contains(t, string(r.Data), "network tx2")
	assert.NotContains(t, string(r.Data), secret)
	require.NoError(t, s.Close(t.Context()))
}

// noter stores data with its resources. Its steps record a resource without an id.
type noter struct {
	*fakeDriver
	data json.RawMessage
}

func (n *noter) Init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	return l.Record(ctx, driver.Resource{Kind: "network", ID: env.ID, Data: n.data})
}

func (n *noter) Execute(ctx context.Context, _ *driver.Environment, _ *driver.Step, _ io.Writer, l driver.Ledger) (*driver.Result, error) {
	return nil, l.Record(ctx, driver.Resource{Kind: "network", Data: n.data})
}

// Rule T2: Recover skips transactions that this process has open or already cleans up.
func TestRecoverConcernsEarlierProcessesAlone(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	s := newStages(t, w)
	s.init("open")
	s.init("stuck")
	w.mu.Lock()
	w.stubborn = func(driver.Resource) error { return errors.New("busy") }
	w.mu.Unlock()
	s.cleanup("stuck")
	for range 3 {
		require.NoError(t, s.Recover(t.Context()))
	}
	assert.Len(t, w.cleaned, 1)
	assert.Equal(t, []string{"network open", "network stuck"}, w.left())
}

// Rule T3: a log service that is slow to accept a background step's log blocks neither the
// slot nor other logs. The cleanup waits for both logs.
func TestLogsThatAreSlowToCloseHoldNoSlot(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
		return &driver.Result{Detached: true}, nil
	}
	closing, let := make(chan struct{}), make(chan struct{})
	s := newStages(t, w, transaction.WithLog(func(context.Context, logger.StreamConfig) logger.TaskLog {
		return &slowLog{closing, let}
	}))
	s.init("tx")
	s.execute("tx", "one")
	s.execute("tx", "two")
	done := make(chan *task.Response, 1)
	go func() { done <- s.cleanup("tx") }()
	<-closing
	<-closing
	assert.Zero(t, s.slots.Used())
	assert.Empty(t, done)
	close(let)
	assert.Equal(t, stage.Success, statusOf(<-done))
}

type slowLog struct{ closing, let chan struct{} }

func (l *slowLog) Write(b []byte) (int, error) { return len(b), nil }

func (l *slowLog) Close(context.Context) error {
	l.closing <- struct{}{}
	<-l.let
	return nil
}

// Rule T2: Close waits for a running cleanup of Maintain and allows no new one, because
// another process may own the ledger afterwards.
func TestCloseWaitsForARunningCleanupOfMaintain(t *testing.T) {
	t.Parallel()
	var attempts atomic.Int64
	trying, let := make(chan struct{}, 100), make(chan struct{})
	w := &careless{fakeDriver: newFakeDriver()}
	w.cleanup = func(_ context.Context, rs []driver.Resource) ([]driver.Resource, error) {
		if attempts.Add(1) > 1 {
			trying <- struct{}{}
			<-let
		}
		return rs, errors.New("busy")
	}
	s := newStages(t, w.fakeDriver)
	s.Stages = transaction.New(w, transaction.WithLedger(s.ledger))
	s.init("tx")
	s.cleanup("tx")
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Maintain(ctx, time.Millisecond) })
	<-trying
	closed := make(chan error, 1)
	go func() { closed <- s.Close(t.Context()) }()
	other := transaction.New(newFakeDriver(), transaction.WithLedger(s.ledger))
	require.ErrorIs(t, other.Recover(t.Context()), transaction.ErrLedger, "the ledger is still in use")
	close(let)
	require.NoError(t, <-closed)
	n := attempts.Load()
	stop()
	wg.Wait()
	assert.Equal(t, n, attempts.Load())
	require.ErrorIs(t, s.Recover(t.Context()), transaction.ErrLedger)
}

func TestOptionsThatMakeNoSensePanic(t *testing.T) {
	t.Parallel()
	assert.Panics(t, func() { transaction.New(newFakeDriver(), transaction.WithLedger("")) })
}
