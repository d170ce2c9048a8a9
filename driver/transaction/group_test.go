package transaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
)

var (
	_ poller.Stages = (*transaction.Stages)(nil)
	_ poller.Stages = (*transaction.Group)(nil)
)

// closableDriver counts how often its driver is closed.
type closableDriver struct {
	*fakeDriver
	closed atomic.Int32
}

func (w *closableDriver) Close() error {
	w.closed.Add(1)
	return errors.New("the engine does not answer")
}

// Rules D1, Q1: a delegate of two drivers has the routes of both, one limit for both, and the
// sums of their counts. Close reaches each driver once.
func TestAGroupRunsTheStagesOfSeveralDrivers(t *testing.T) {
	t.Parallel()
	dir, slots := t.TempDir(), capacity.NewSlots(3)
	local, pods := &closableDriver{fakeDriver: newFakeDriver()}, &closableDriver{fakeDriver: newFakeDriver()}
	make1 := func(d driver.Driver, infra string) *transaction.Stages {
		return transaction.New(d, transaction.WithSlots(slots), transaction.WithInfra(infra),
			transaction.WithLedger(filepath.Join(dir, infra)))
	}
	g := transaction.Join(make1(local, transaction.Local), make1(pods, transaction.Kubernetes))
	assert.Same(t, slots, g.Slots())
	types := slices.Sorted(maps.Keys(g.Routes()))
	assert.Equal(t, []string{
		"CI_DOCKER_CLEANUP_TASK", "CI_DOCKER_EXECUTE_TASK", "CI_DOCKER_INITIALIZE_TASK", "kubernetes_cleanup",
		"kubernetes_execute", "kubernetes_init", "local_cleanup", "local_execute", "local_init",
	}, types)
	require.NoError(t, g.Recover(t.Context()))
	for _, typ := range []string{"local_init", "kubernetes_init"} {
		r, _ := task.Serve(t.Context(), g.Routes()[typ], &task.Task{ID: typ, Type: typ, Data: json.RawMessage(`{"group_id":"` + typ + `"}`)})
		require.Equal(t, stage.Success, statusOf(r))
	}
	assert.Equal(t, 2, g.Stats().Open)
	assert.Equal(t, 2, slots.Used())
	assert.Equal(t, []string{"network local_init"}, local.left())
	assert.Equal(t, []string{"network kubernetes_init"}, pods.left())

	g.CleanUpForgotten(t.Context(), &task.Task{Type: "kubernetes_init", Data: json.RawMessage(`{"group_id":"kubernetes_init"}`)})
	assert.Empty(t, pods.left())
	assert.Equal(t, 1, g.Stats().Open)
	g.CleanUpUnclaimed(t.Context())
	assert.Equal(t, 1, g.Stats().Open, "it was not resumed")
	ended, end := context.WithCancel(t.Context())
	end()
	g.Maintain(ended, 0)

	err := g.Close(t.Context())
	assert.Equal(t, 2, strings.Count(err.Error(), "the engine does not answer"))
	require.NoError(t, g.Close(t.Context()))
	assert.Empty(t, local.left())
	assert.EqualValues(t, 1, local.closed.Load())
	assert.EqualValues(t, 1, pods.closed.Load())
}

func TestJoinOfStagesThatDoNotFitPanics(t *testing.T) {
	t.Parallel()
	slots := transaction.WithSlots(capacity.NewSlots(1))
	local := transaction.New(newFakeDriver(), slots, transaction.WithLedger("a"))
	assert.PanicsWithValue(t, "transaction: Join of stages with different slots: give each the same WithSlots", func() {
		transaction.Join(local, transaction.New(newFakeDriver(), transaction.WithLedger("b"), transaction.WithInfra(transaction.VM)))
	})
	assert.PanicsWithValue(t, "transaction: Join of stages with the same ledger: give each its own WithLedger", func() {
		transaction.Join(local, transaction.New(newFakeDriver(), slots, transaction.WithLedger("a"), transaction.WithInfra(transaction.VM)))
	})
	assert.Panics(t, func() {
		transaction.Join(local, transaction.New(newFakeDriver(), slots, transaction.WithLedger("b"), transaction.WithInfra(transaction.VM, transaction.Local)))
	})
	assert.Empty(t, transaction.Join().Routes())
	assert.Zero(t, transaction.Join().Slots().Max())
}

// Rule T2: a resource that cannot be removed does not prevent the delegate from
// working. It is logged, and Maintain removes it later.
func TestRecoverLogsResourcesThatItCannotRemove(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	s := newStages(t, w)
	s.init("tx")
	require.NoError(t, s.Crash())
	w.stubborn = func(driver.Resource) error { return errors.New("device busy") }
	var log strings.Builder
	again := reopenStages(t, w, s.ledger, transaction.WithLogger(zerolog.New(&log)), transaction.WithInFlight(0))
	require.NoError(t, again.Stages.Recover(t.Context()))
	assert.Contains(t, log.String(), "cannot remove all resources of an earlier process: trying again later")
	assert.Contains(t, log.String(), "device busy")
	require.Len(t, w.left(), 1)
	w.mu.Lock()
	w.stubborn = nil
	w.mu.Unlock()
	maintained, end := context.WithCancel(t.Context())
	defer end()
	over := make(chan struct{})
	go func() { defer close(over); again.Maintain(maintained, 1) }()
	require.Eventually(t, func() bool { return len(w.left()) == 0 }, 30*time.Second, time.Millisecond)
	end()
	<-over
}
