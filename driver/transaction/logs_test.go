package transaction_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// awayLog cannot be closed until the test allows it.
type awayLog struct {
	let    chan struct{}
	closed *atomic.Int64
}

func (l awayLog) Write(b []byte) (int, error) { return len(b), nil }

func (l awayLog) Close(ctx context.Context) error {
	<-l.let
	l.closed.Add(1)
	return ctx.Err()
}

// Rule L2: an unreachable log service delays a stage only briefly. Steps answer before their
// logs have arrived. The cleanup waits for them, but not for more than ten seconds.
func TestAnswersDoNotWaitLongForTheirLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFakeDriver()
		w.onExecute = func(_ context.Context, _ *driver.Environment, _ *driver.Step, out io.Writer) (*driver.Result, error) {
			_, err := io.WriteString(out, "text\n")
			return &driver.Result{}, err
		}
		w.onInit = func(_ context.Context, env *driver.Environment) error {
			_, err := io.WriteString(env.Log, "text\n")
			return err
		}
		let, closed := make(chan struct{}), new(atomic.Int64)
		s := newStages(t, w, transaction.WithLog(func(context.Context, logger.StreamConfig) logger.TaskLog {
			return awayLog{let, closed}
		}))
		began := time.Now()
		s.init("tx")
		for i := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			r := s.run(ctx, "local_execute", stage.ExecuteRequest{GroupID: "tx", Step: stage.Step{ID: fmt.Sprint(i)}})
			cancel() // the context of the task, when its handler returns
			assert.Equal(t, stage.Success, statusOf(r))
		}
		assert.Equal(t, 4*2*time.Second, time.Since(began))
		done := make(chan *task.Response, 1)
		go func() { done <- s.cleanup("tx") }()
		synctest.Wait()
		assert.Zero(t, s.slots.Used(), "the next stage can begin")
		assert.Empty(t, done, "the cleanup answers when the logs are complete")
		assert.Zero(t, closed.Load())
		began = time.Now()
		assert.Equal(t, stage.Success, statusOf(<-done))
		assert.Equal(t, 10*time.Second, time.Since(began))
		close(let)
		require.NoError(t, s.Close(t.Context()))
		assert.EqualValues(t, 4, closed.Load(), "Close waits for all logs")
	})
}

// No caller of the goroutine that closes a log recovers a panic, so the goroutine must do so
// itself.
func TestALogThatPanicsEndsNoDelegate(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	s := newStages(t, w, transaction.WithLog(func(context.Context, logger.StreamConfig) logger.TaskLog {
		return closer(func(context.Context) error { panic("on purpose") })
	}))
	s.init("tx")
	s.execute("tx", "one")
	assert.Equal(t, stage.Success, statusOf(s.cleanup("tx")))
}
