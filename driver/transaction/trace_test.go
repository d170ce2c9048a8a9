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
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// Rule L3: a step's environment has the span of its task. It does not have the span of another
// trace that an earlier step or the init exported.
func TestAStepFindsItsTraceInItsEnvironment(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		task task.Task
		want map[string]string
	}{
		"a trace": {task.Task{Traceparent: traceparent, Tracestate: "a=b"},
			map[string]string{"TRACEPARENT": traceparent, "TRACESTATE": "a=b"}},
		"a trace without a state": {task.Task{Traceparent: traceparent}, map[string]string{"TRACEPARENT": traceparent}},
		"no trace":                {task.Task{}, map[string]string{"TRACEPARENT": "of the init", "TRACESTATE": "x=y"}},
		"no trace context":        {task.Task{Traceparent: "1"}, map[string]string{"TRACEPARENT": "of the init", "TRACESTATE": "x=y"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeDriver()
			var got map[string]string
			w.onExecute = func(_ context.Context, env *driver.Environment, _ *driver.Step, _ io.Writer) (*driver.Result, error) {
				got = env.Envs
				return &driver.Result{}, nil
			}
			s := newStages(t, w)
			opened := s.run(t.Context(), "local_init", stage.InitRequest{
				Network: stage.Network{ID: "tx"}, Envs: map[string]string{"TRACEPARENT": "of the init", "TRACESTATE": "x=y"},
			})
			require.Equal(t, stage.Success, statusOf(opened))
			b, err := json.Marshal(stage.ExecuteRequest{GroupID: "tx", Step: stage.Step{ID: "s"}})
			require.NoError(t, err)
			tk := tc.task
			tk.ID, tk.Type, tk.Data = "t", "local_execute", b
			ran, _ := task.Serve(t.Context(), s.Routes()["local_execute"], &tk)
			require.Equal(t, stage.Success, statusOf(ran), ran.Error)
			assert.Equal(t, tc.want, got)
		})
	}
}

// Rule L3: the counts of log output include masked bytes only, and the logs that did not
// arrive.
func TestLogsAreCounted(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	w.onExecute = func(_ context.Context, _ *driver.Environment, _ *driver.Step, out io.Writer) (*driver.Result, error) {
		_, err := io.WriteString(out, "nine bytes and visibly-fake-secret")
		return &driver.Result{}, err
	}
	s := newStages(t, w, transaction.WithLog(func(context.Context, logger.StreamConfig) logger.TaskLog { return lossy{} }))
	require.Equal(t, transaction.Stats{}, s.Stats())
	require.Equal(t, stage.Success, statusOf(s.init("tx")))
	ran := s.run(t.Context(), "local_execute", stage.ExecuteRequest{
		GroupID: "tx", Step: stage.Step{ID: "s", Secrets: []string{"visibly-fake-secret"}},
	})
	require.Equal(t, stage.Success, statusOf(ran), ran.Error)
	assert.Equal(t, transaction.Stats{Open: 1, LogBytes: int64(len("nine bytes and ******")), LogsIncomplete: 1}, s.Stats())
	require.Equal(t, stage.Success, statusOf(s.cleanup("tx")))
	assert.Zero(t, s.Stats().Open)
}

// lossy is a log that loses all output.
type lossy struct{}

func (lossy) Write(b []byte) (int, error) { return len(b), nil }

func (lossy) Close(context.Context) error { return errors.New("the log service was away") }
