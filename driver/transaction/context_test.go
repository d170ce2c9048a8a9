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
	"github.com/delegate-io/dlite/task/stage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// P4, T7: the end of a task reaches the driver with its reason; what a step
// still has to say after it is not lost.
func TestTheEndOfATaskReachesTheDriver(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	w.onExecute = func(ctx context.Context, _ *driver.Environment, _ *driver.Step, _ io.Writer) (*driver.Result, error) {
		<-ctx.Done()
		return nil, errors.New("killed")
	}
	var closedWith error
	s := newStages(t, w, transaction.WithLog(func(context.Context, transaction.LogTarget) transaction.Log {
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

// T3: a cleanup goes on when its task has ended, but not for ever; who waits for
// it hears what came of it.
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
	if err := <-closed; err != nil { // it came before the cleanup's end
		assert.ErrorContains(t, err, "busy")
	}
}

// T2, T8: resources can be found by whose they are, the driver's state is on
// record, and a resource that is recorded again is one resource.
func TestTheRecordSaysWhatADriverNeeds(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	var labels map[string]string
	w.onInit = func(_ context.Context, env *driver.Environment) error { labels = env.Labels; return nil }
	s := newStages(t, w)
	s.run(t.Context(), "local_init", stage.InitRequest{Network: stage.Network{
		ID: "tx", Labels: map[string]string{"team": "blue", driver.LabelTransaction: "somebody else's"},
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

// T2: what is asked for after the end of a task is neither recorded nor created.
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
