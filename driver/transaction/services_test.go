package transaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

const initWithServices = `{"setup_vm_request":{"id":"stage1","setup_request":{}},"services":[
	{"stage_runtime_id":"stage1","start_step_request":{"id":"db","name":"Database","image":"busybox:1","log_key":"stage1/db",
		"run":{"commands":["serve"]},"step_status":{"endpoint":"http://127.0.0.1:1","task_id":"t"}}},
	{"start_step_request":{"image":"busybox:2","detach":true}},
	null]}`

// Rule D2 and docs/protocol.md section 3: the services of an init are background steps of its
// transaction. The answer has the status of each start. A service that did not start does not
// fail the init. A repeated init starts no service again.
func TestServicesOfAnInit(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	var mu sync.Mutex
	var started []*driver.Step
	w.onExecute = func(_ context.Context, env *driver.Environment, s *driver.Step, _ io.Writer) (*driver.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		started = append(started, s)
		assert.Equal(t, "stage1", env.ID)
		if s.Image == "" {
			return nil, errors.New("it names nothing to run")
		}
		return &driver.Result{Detached: true}, nil
	}
	s := newStages(t, w)
	for range 2 {
		r := s.send("DLITE_CI_VM_INITIALIZE_TASK", initWithServices)
		require.Equal(t, stage.Success, statusOf(r), string(r.Data))
		var body struct {
			Statuses json.RawMessage `json:"service_statuses"`
		}
		require.NoError(t, json.Unmarshal(r.Data, &body))
		assert.JSONEq(t, `[
			{"identifier":"db","name":"Database","image":"busybox:1","log_key":"stage1/db","status":"RUNNING","error_message":""},
			{"identifier":"service-1","name":"","image":"busybox:2","log_key":"","status":"RUNNING","error_message":""},
			{"identifier":"service-2","name":"","image":"","log_key":"","status":"ERROR","error_message":"it names nothing to run"}]`, string(body.Statuses))
	}
	require.Len(t, started, 3)
	for _, step := range started {
		assert.True(t, step.Detach)
		assert.Nil(t, step.StepStatus, "only the init answers for it")
	}
	r := s.send("DLITE_CI_VM_CLEANUP_TASK", `{"stage_runtime_id":"stage1"}`)
	require.Equal(t, stage.Success, statusOf(r), string(r.Data))
	assert.Empty(t, w.left())
	_, done := s.logs.get("stage1/db")
	assert.True(t, done, "the log of a service ends with its transaction")
}

// Rule T3: an init that is aborted while its services start is cleaned up.
func TestAnInitThatIsAbortedBeforeItsServicesRun(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	ctx, abort := context.WithCancel(t.Context())
	defer abort()
	w.onExecute = func(ctx context.Context, _ *driver.Environment, _ *driver.Step, _ io.Writer) (*driver.Result, error) {
		abort()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s := newStages(t, w)
	h := s.Routes()["DLITE_CI_VM_INITIALIZE_TASK"]
	r, _ := task.Serve(ctx, h, &task.Task{ID: "i", Type: "DLITE_CI_VM_INITIALIZE_TASK", Data: json.RawMessage(initWithServices)})
	assert.NotEqual(t, stage.Success, statusOf(r), string(r.Data))
	assert.Zero(t, s.Open())
	assert.Zero(t, s.slots.Used())
	assert.Empty(t, w.left())
}

// A service whose start panics has failed. The other services and the init are not affected.
func TestAServiceThatPanics(t *testing.T) {
	t.Parallel()
	s := stagesOn(t, newFakeDriver(), newFakeDriver(), t.TempDir(), transaction.WithLog(func(_ context.Context, target logger.StreamConfig) logger.TaskLog {
		panic(fmt.Sprint("no log for ", target.Key))
	}))
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	r := s.send("DLITE_CI_VM_INITIALIZE_TASK", initWithServices)
	require.Equal(t, stage.Success, statusOf(r), string(r.Data))
	assert.Contains(t, string(r.Data), "no log for stage1/db")
}
