package transaction_test

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task/stage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Rules P4, T7: the driver learns the end of a task and its reason. Output that a step writes
// afterwards is not lost.
func TestTheEndOfATaskReachesTheDriver(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	w.onExecute = func(ctx context.Context, _ *driver.Environment, _ *driver.Step, _ io.Writer) (*driver.Result, error) {
		<-ctx.Done()
		return nil, errors.New("killed")
	}
	var closedWith error
	s := newStages(t, w, transaction.WithLog(func(context.Context, logger.StreamConfig) logger.TaskLog {
		return closer(func(ctx context.Context) error { closedWith = ctx.Err(); return nil })
	}))
	s.init("tx")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	r := s.run(ctx, "local_execute", stage.ExecuteRequest{GroupID: "tx", Step: stage.Step{ID: "one"}})
	assert.Equal(t, stage.Timeout, statusOf(r))
	require.NoError(t, closedWith, "the log can still be sent")
}

type closer func(context.Context) error

func (closer) Write(b []byte) (int, error) { return len(b), nil }

func (c closer) Close(ctx context.Context) error { return c(ctx) }

// Rule T3: a cleanup continues when its task has ended, but within its own limit. Callers that
// wait for it get its result.
func TestACleanupOutlivesItsTaskWithinItsOwnTime(t *testing.T) {
	t.Parallel()
	w := &careless{fakeDriver: newFakeDriver()}
	cleaning, let := make(chan struct{}), make(chan struct{})
	w.cleanup = func(ctx context.Context, rs []driver.Resource) ([]driver.Resource, error) {
		close(cleaning)
		<-let
		_, bounded := ctx.Deadline()
		assert.True(t, bounded)
		assert.NoError(t, ctx.Err())
		return rs, errors.New("busy")
	}
	s := newStages(t, w.fakeDriver)
	s.Stages = transaction.New(w, transaction.WithLedger(s.ledger))
	s.init("tx")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.run(ctx, "local_cleanup", stage.CleanupRequest{GroupID: "tx"}) })
	<-cleaning
	cancel()
	closed := make(chan error, 1)
	go func() { closed <- s.Close(t.Context()) }()
	close(let)
	wg.Wait()
	if err := <-closed; err != nil { // it returned before the cleanup ended
		assert.ErrorContains(t, err, "busy")
	}
}

// Rules T2, T8: resources are found by their owner. The driver's state is in the record. A
// resource that is recorded twice is one resource.
func TestTheRecordHoldsTheStateOfItsDriver(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	var labels map[string]string
	w.onInit = func(_ context.Context, env *driver.Environment) error { labels = env.Labels; return nil }
	s := newStages(t, w)
	s.run(t.Context(), "local_init", stage.InitRequest{Network: stage.Network{
		ID: "tx", Labels: map[string]string{"team": "blue", driver.LabelTransaction: "another transaction"},
	}})
	assert.Subset(t, labels, map[string]string{
		"team": "blue", driver.LabelTransaction: "tx", driver.LabelDelegate: "tester", driver.LabelAccount: "acct",
	})
	record, err := os.ReadFile(s.records()[0])
	require.NoError(t, err)
	assert.Contains(t, string(record), `"ready":true`)
	s.execute("tx", "one")
	s.execute("tx", "one")
	s.cleanup("tx")
	assert.Len(t, w.cleaned[0], 2)
}

// Rule T2: a request after the end of its task is neither recorded nor carried out.
func TestNothingIsRecordedForATaskThatHasEnded(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	s := newStages(t, w)
	s.init("tx")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.run(ctx, "local_execute", stage.ExecuteRequest{GroupID: "tx", Step: stage.Step{ID: "one"}})
	assert.Equal(t, []string{"network tx"}, w.left())
}
