package transaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// send passes the text of a payload to the route of its type.
func (s *stages) send(typ, data string) *task.Response {
	s.t.Helper()
	h := s.Routes()[typ]
	require.NotNil(s.t, h, typ)
	r, _ := task.Serve(s.t.Context(), h, &task.Task{ID: typ, Type: typ, Data: json.RawMessage(data), Account: "acct"})
	return r
}

// Rule T1 and docs/protocol.md section 3: a stage in the envelopes that other managers send to
// delegates with VMs.
func TestAStageInEnvelopes(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "_V2"} {
		var seen driver.Environment
		var step driver.Step
		w := newFakeDriver()
		w.onInit = func(_ context.Context, env *driver.Environment) error {
			seen = *env
			return nil
		}
		w.onExecute = func(_ context.Context, _ *driver.Environment, s *driver.Step, _ io.Writer) (*driver.Result, error) {
			step = *s
			return &driver.Result{Outputs: map[string]string{"K": "v"}}, nil
		}
		s := newStages(t, w)
		r := s.send("DLITE_CI_VM_INITIALIZE_TASK", `{"setup_vm_request":{"id":"stage1","pool_id":"linux-big","tags":{"a":"b"},
			"context":{"account_id":"acct"},"log_key":"stage1/init",
			"setup_request":{"network":{"id":"drone","options":{"mtu":"1400"}},"envs":{"A":"1"}}},"services":[],"distributed":true}`)
		require.Equal(t, stage.Success, statusOf(r), string(r.Data))
		assert.Equal(t, "stage1", seen.ID)
		assert.Equal(t, map[string]string{stage.PoolOption: "linux-big", "mtu": "1400"}, seen.Network.Options)
		assert.Equal(t, map[string]string{"A": "1"}, seen.Envs)

		r = s.send("DLITE_CI_VM_EXECUTE_TASK"+version, `{"execute_step_request":{"stage_runtime_id":"stage1","task_id":"t","distributed":true,
			"ip_address":"10.0.0.7","start_step_request":{"id":"step1","run":{"commands":["true"]},
			"step_status":{"endpoint":"http://127.0.0.1:1","task_id":"t"}}},"context":{}}`)
		require.Equal(t, stage.Success, statusOf(r), string(r.Data))
		assert.Equal(t, "step1", step.ID)
		assert.Nil(t, step.StepStatus, "it would be answered twice")
		assert.Contains(t, string(r.Data), `"output_vars":{"K":"v"}`)

		r = s.send("DLITE_CI_VM_CLEANUP_TASK"+version, `{"pool_id":"linux-big","stage_runtime_id":"stage1","distributed":true,"context":{}}`)
		require.Equal(t, stage.Success, statusOf(r), string(r.Data))
		assert.Zero(t, s.Open())
		assert.Empty(t, w.exists)
	}
}

// Rule T3: if a manager has forgotten a task, the delegate cleans up the task's transaction,
// with any envelope.
func TestForgottenTransactionInAnEnvelopeIsCleanedUp(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	s := newStages(t, w)
	s.send("DLITE_CI_VM_INITIALIZE_TASK", `{"setup_vm_request":{"id":"stage1","setup_request":{}}}`)
	require.Equal(t, 1, s.Open())
	s.CleanUpForgotten(t.Context(), &task.Task{
		Type: "DLITE_CI_VM_EXECUTE_TASK", Data: json.RawMessage(`{"execute_step_request":{"stage_runtime_id":"stage1","start_step_request":{"id":"s"}}}`),
	})
	assert.Zero(t, s.Open())
	assert.Empty(t, w.exists)
}

// Rule D7: the driver gets the steps that will follow, and the passwords of their registries
// are secrets.
func TestAnnouncedStepsReachTheDriver(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	w.onInit = func(_ context.Context, env *driver.Environment) error {
		if assert.Len(t, env.Steps, 1) {
			assert.Equal(t, "busybox:1", env.Steps[0].Image)
		}
		return errors.New("refused: hunter2-not-real")
	}
	s := newStages(t, w)
	r := s.send("kubernetes_init", `{"group_id":"g","steps":[{"id":"a","image":"busybox:1","auth":{"password":"hunter2-not-real"}}]}`)
	require.Equal(t, stage.Failure, statusOf(r))
	assert.Contains(t, string(r.Data), "refused")
	assert.NotContains(t, string(r.Data), "hunter2-not-real")
}

func TestAnUnknownInfrastructurePanics(t *testing.T) {
	t.Parallel()
	assert.Panics(t, func() { transaction.New(newFakeDriver(), transaction.WithInfra("mainframe")) })
}
