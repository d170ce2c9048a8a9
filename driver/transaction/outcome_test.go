package transaction_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// Rules L1, L3: the answer of a failed step has the code OK, but its log event names the step
// and the failure, and the metrics count it as failed.
func TestLogAndMetricsSayThatAStepFailed(t *testing.T) {
	t.Parallel()
	w, log := newFakeDriver(), &bytes.Buffer{}
	var seen []router.Observation
	s := newStages(t, w)
	r := router.New(s.Routes(), router.WithMiddleware(router.Metrics(func(o router.Observation) { seen = append(seen, o) })),
		router.Standard(zerolog.New(log)))
	run := func(typ, data string) (*task.Response, router.Observation, map[string]any) {
		log.Reset()
		ctx := logger.ContextWithLabels(t.Context(), logger.Labels{Delegate: "build-7"})
		resp, _ := task.Serve(ctx, r, &task.Task{ID: "task-1", Type: typ, Data: json.RawMessage(data), Account: "acct"})
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		var last map[string]any
		require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
		assert.Contains(t, last, "duration")
		delete(last, "duration")
		return resp, seen[len(seen)-1], last
	}
	ended := func(typ, kind, code string, more map[string]any) map[string]any {
		line := map[string]any{
			"level": "info", "message": "task ended", "account": "acct", "delegate": "build-7", "task": "task-1", "task_type": typ,
			"kind": kind, "transaction": "tx", "stage": "tx", "code": code, "http_status": 200.0,
		}
		for k, v := range more {
			line[k] = v
		}
		return line
	}
	const initTask, stepTask, cleanupTask = "local_init", "local_execute", "local_cleanup"

	_, o, line := run(initTask, `{"group_id":"tx"}`)
	assert.Equal(t, task.OK, o.Code)
	assert.Equal(t, ended(initTask, "init", "OK", map[string]any{"status": "SUCCESS"}), line)

	w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
		return &driver.Result{ExitCode: 3}, nil
	}
	resp, o, line := run(stepTask, `{"group_id":"tx","stage_runtime_id":"build","id":"compile"}`)
	assert.Equal(t, task.OK, resp.Code, "the answer on the wire")
	assert.Equal(t, task.Failed, o.Code)
	o.Type, o.Kind, o.Duration = "", "", 0
	assert.Equal(t, router.Observation{
		Code: task.Failed, Status: 200,
		Transaction: "tx", Stage: "build", Step: "compile", CommandStatus: "FAILURE", ExitCode: 3,
	}, o)
	assert.Equal(t, ended(stepTask, "execute", "OK", map[string]any{"stage": "build", "step": "compile", "status": "FAILURE", "exit_code": 3.0}), line)

	w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
		return nil, context.DeadlineExceeded
	}
	_, o, line = run(stepTask, `{"group_id":"tx","id":"slow"}`)
	assert.Equal(t, task.Timeout, o.Code)
	assert.Equal(t, "TIMEOUT", line["status"])

	_, o, line = run(cleanupTask, `{"group_id":"tx"}`)
	assert.Equal(t, task.OK, o.Code)
	assert.Equal(t, ended(cleanupTask, "cleanup", "OK", map[string]any{"status": "SUCCESS"}), line)

	_, o, line = run(stepTask, `{"group_id":"tx","id":"late"}`) // refused
	assert.Equal(t, task.Failed, o.Code)
	assert.Equal(t, "late", line["step"])
	assert.NotContains(t, line, "status")

	w.onInit = func(context.Context, *driver.Environment) error { return errors.New("no network") }
	_, o, _ = run(initTask, `{"group_id":"tx2"}`)
	assert.Equal(t, task.Failed, o.Code)
	_, o, line = run("DLITE_CI_VM_INITIALIZE_TASK", `{"setup_vm_request":{"id":"tx3"}}`)
	assert.Equal(t, task.Failed, o.Code)
	assert.Equal(t, "tx3", line["transaction"])
}

// Rules L1, S3: the driver's log events have the labels of the task and show no secret of the
// transaction, wherever the secret comes from. Without a logger in the context, the driver
// logs to the log of the stages.
func TestDriversLogWithLabelsAndWithoutSecrets(t *testing.T) {
	t.Parallel()
	for _, inContext := range []bool{true, false} {
		w, log := newFakeDriver(), &bytes.Buffer{}
		w.onInit = func(ctx context.Context, env *driver.Environment) error {
			logger.FromContext(ctx).Info().Str("env", env.Envs["TOKEN"]).Msg("in the init")
			return nil
		}
		w.onExecute = func(ctx context.Context, _ *driver.Environment, s *driver.Step, _ io.Writer) (*driver.Result, error) {
			logger.FromContext(ctx).Info().Interface("env", s.Environment).Msg("in the step init-hush")
			panic("step-hush is refused")
		}
		ctx := t.Context()
		var opts []transaction.Option
		if inContext {
			ctx = logger.NewContext(ctx, logger.Labels{Task: "from the context"}.Apply(zerolog.New(log)))
		} else {
			opts = append(opts, transaction.WithLogger(zerolog.New(log)))
		}
		s := newStages(t, w, opts...)
		s.run(ctx, "local_init", json.RawMessage(`{"group_id":"tx","envs":{"TOKEN":"init-hush"},"secrets":["init-hush"]}`))
		r := s.run(ctx, "local_execute", json.RawMessage(`{"group_id":"tx","id":"one","envs":{"A":"step-hush"},"secrets":["step-hush"]}`))
		assert.NotContains(t, string(r.Data), "hush")
		require.NotContains(t, log.String(), "hush")
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		assert.Contains(t, lines[0], `"env":"******"`)
		assert.Contains(t, lines[0], `"transaction":"tx"`)
		assert.Contains(t, lines[1], `"step":"one"`)
		assert.Contains(t, lines[1], `"in the step ******"`)
		assert.Contains(t, lines[2], "the driver's execution panicked")
		assert.Contains(t, lines[2], `"step":"one"`)
		assert.Equal(t, inContext, strings.Contains(lines[0], "from the context"))
	}
}
