package transaction_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

func newPooled(t *testing.T) (*pooled, *stages) {
	t.Helper()
	p := &pooled{fakeDriver: newFakeDriver()}
	s := stagesOn(t, p, p.fakeDriver, t.TempDir())
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return p, s
}

const capacityTask = `{"capacity_reservation_request":{"id":"stage1","pool_id":"linux","context":{"account_id":"acct"},"timeout":90000}}`

// Rule Q1 and docs/protocol.md section 3: a reservation in its envelope reaches the driver
// with the init's pool, and the answer names the machine. It takes no slot and opens no
// transaction.
func TestACapacityTaskReserves(t *testing.T) {
	t.Parallel()
	p, s := newPooled(t)
	r := s.send("DLITE_CI_VM_CAPACITY_TASK", capacityTask)
	require.Equal(t, task.OK, r.Code)
	assert.JSONEq(t, `{"command_execution_status":"SUCCESS","infra_type":"world","delegate_meta_info":{"id":"tester","host_name":"tester"},
		"capacity_reservation":{"stage_id":"stage1","pool_name":"linux","instance_id":"machine-1","expires_at":1700000000000}}`, string(r.Data))
	require.Len(t, p.asked, 1)
	assert.Equal(t, "stage1", p.asked[0].ID)
	assert.Equal(t, map[string]string{stage.PoolOption: "linux"}, p.asked[0].Network.Options)
	assert.Equal(t, 90*time.Second, p.limits[0])
	assert.Zero(t, s.slots.Used())
	assert.Zero(t, s.Open())

	s.send("DLITE_CI_VM_CAPACITY_TASK", `{"capacity_reservation_request":{"id":"stage2"}}`)
	assert.Equal(t, 2*time.Minute, p.limits[1], "a default")
	assert.Empty(t, p.asked[1].Network.Options)
	assert.Empty(t, p.returned)
}

// Rule T3: a cleanup ends a reservation, with and without an init. A reservation after the
// cleanup is refused. A reservation that the cleanup overtakes is released.
func TestACleanupEndsAReservation(t *testing.T) {
	t.Parallel()
	p, s := newPooled(t)
	cleanup := func() {
		r := s.send("DLITE_CI_VM_CLEANUP_TASK", `{"stage_runtime_id":"stage1"}`)
		require.Equal(t, stage.Success, statusOf(r), string(r.Data))
	}
	s.send("DLITE_CI_VM_CAPACITY_TASK", capacityTask)
	cleanup()
	assert.Equal(t, []string{"stage1"}, p.returned)
	r := s.send("DLITE_CI_VM_CAPACITY_TASK", capacityTask)
	assert.Equal(t, task.Failed, r.Code)
	assert.Contains(t, string(r.Data), "has been cleaned up already")
	assert.Len(t, p.asked, 1)

	p, s = newPooled(t)
	p.onAsk = func() error { cleanup(); return nil }
	r = s.send("DLITE_CI_VM_CAPACITY_TASK", capacityTask)
	assert.Equal(t, task.Failed, r.Code)
	assert.Equal(t, []string{"stage1", "stage1"}, p.returned)
}

// docs/protocol.md section 3: a reservation for a stage that has begun reserves nothing. A
// reservation that its init overtakes is released.
func TestAReservationAfterItsInit(t *testing.T) {
	t.Parallel()
	p, s := newPooled(t)
	begin := func() {
		s.send("DLITE_CI_VM_INITIALIZE_TASK", `{"setup_vm_request":{"id":"stage1","setup_request":{}}}`)
	}
	p.onAsk = func() error { begin(); return nil }
	for range 2 {
		r := s.send("DLITE_CI_VM_CAPACITY_TASK", capacityTask)
		require.Equal(t, stage.Success, statusOf(r), string(r.Data))
		assert.Contains(t, string(r.Data), `"capacity_reservation":{"stage_id":"stage1"}`)
	}
	assert.Len(t, p.asked, 1)
	assert.Equal(t, []string{"stage1", "stage1"}, p.returned, "by the init, then by the reservation that it overtook")
	require.NoError(t, s.Close(t.Context()))
	r := s.send("DLITE_CI_VM_CAPACITY_TASK", `{"capacity_reservation_request":{"id":"stage2"}}`)
	assert.Equal(t, task.RetryOnOtherDelegate, r.Code)
}

// Rule T3: an init that fails before it reaches the driver, as on a full disk, releases its
// reservation.
func TestAnInitThatDoesNotGetToItsDriverGivesBackItsReservation(t *testing.T) {
	t.Parallel()
	p, s := newPooled(t)
	p.onInit = func(context.Context, *driver.Environment) error {
		t.Error("nothing may be made without a record")
		return nil
	}
	s.send("DLITE_CI_VM_CAPACITY_TASK", capacityTask)
	require.Empty(t, p.returned)
	require.NoError(t, os.Mkdir(filepath.Join(s.ledger, "lock"), 0o700)) // makes the ledger unusable
	r := s.send("DLITE_CI_VM_INITIALIZE_TASK", `{"setup_vm_request":{"id":"stage1","setup_request":{}}}`)
	require.Equal(t, stage.Failure, statusOf(r), string(r.Data))
	assert.Equal(t, []string{"stage1"}, p.returned)
}

// docs/protocol.md section 3: a failed reservation is an answer with the reason. A driver
// without pools always answers with success.
func TestReservationsThatCannotBe(t *testing.T) {
	t.Parallel()
	p, s := newPooled(t)
	p.onAsk = func() error { return errors.New(`there is no pool "linux"`) }
	r := s.send("DLITE_CI_VM_CAPACITY_TASK", capacityTask)
	assert.Equal(t, stage.Failure, statusOf(r))
	assert.Contains(t, string(r.Data), "there is no pool")
	assert.NotContains(t, string(r.Data), "capacity_reservation")
	r = s.send("DLITE_CI_VM_CAPACITY_TASK", `{"capacity_reservation_request":{"pool_id":"linux"}}`)
	assert.Equal(t, task.Failed, r.Code)
	assert.Contains(t, string(r.Data), "id is needed")

	r = newStages(t, newFakeDriver()).send("DLITE_CI_VM_CAPACITY_TASK", capacityTask)
	assert.Equal(t, stage.Success, statusOf(r), string(r.Data))
}
