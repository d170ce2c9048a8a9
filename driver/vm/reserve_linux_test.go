package vm_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/internal/envelope"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// sendTask sends a task to the transactions, which must succeed.
func sendTask[Answer any](t *testing.T, stages *transaction.Stages, typ string, data any) (answer Answer) {
	t.Helper()
	text, err := json.Marshal(data)
	require.NoError(t, err)
	r, _ := task.Serve(t.Context(), stages.Routes()[typ], &task.Task{ID: typ, Type: typ, Data: text})
	require.Contains(t, string(r.Data), `"command_execution_status":"SUCCESS"`)
	require.NoError(t, json.Unmarshal(r.Data, &answer))
	return answer
}

// Rule D6 and docs/protocol.md, section 3: tasks of a manager reserve real machines. The init
// of the stage gets the reserved machine, and the next stage gets a place in the queue.
// Cleanups return both.
func TestTasksReserveMachines(t *testing.T) {
	t.Parallel()
	s := newSite(t, agentProgram(t), vm.PoolConfig{Min: 1, Max: 1})
	stages := transaction.New(newDriver(t, []*vm.Pool{s.pool}), transaction.WithLedger(t.TempDir()), transaction.WithLog(dropLog),
		transaction.WithInfra(transaction.VM))
	t.Cleanup(func() { require.NoError(t, stages.Close(context.WithoutCancel(t.Context()))) })
	require.Eventually(t, func() bool { return s.pool.Stats().Warm == 1 }, time.Minute, time.Millisecond)

	first := sendTask[envelope.CapacityResponse](t, stages, capacityTask, reservation("one", time.Hour)).Reservation
	require.NotEmpty(t, first.InstanceID)
	require.Equal(t, "linux", first.PoolName)
	second := sendTask[envelope.CapacityResponse](t, stages, capacityTask, reservation("two", time.Hour)).Reservation
	require.Empty(t, second.InstanceID)
	require.Equal(t, 1, second.Place)

	sendTask[stage.InitResponse](t, stages, "vm_init", stage.InitRequest{GroupID: "one"})
	require.Equal(t, 1, s.pool.Stats().Claimed)
	for _, m := range s.records(t) {
		require.Equal(t, first.InstanceID, m.ID)
		require.Equal(t, "one", m.Claim.Transaction)
	}
	sendTask[stage.ExecuteResponse](t, stages, "vm_execute", stage.ExecuteRequest{GroupID: "one", Step: sh("step", "true")})
	sendTask[stage.CleanupResponse](t, stages, "vm_cleanup", stage.CleanupRequest{GroupID: "one"})
	require.Eventually(t, func() bool { return s.pool.Stats().Reserved == 1 }, time.Minute, time.Millisecond)
	sendTask[stage.CleanupResponse](t, stages, "vm_cleanup", stage.CleanupRequest{GroupID: "two"})
	require.Eventually(t, func() bool { return s.pool.Stats() == vm.Stats{Warm: 1} }, time.Minute, time.Millisecond)
}
