package transaction_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// Rule S3: resolved secrets of a task are masked in its answer and log, and for later tasks of
// the same stage.
func TestTheSecretsOfARequestAreMaskedInItsStage(t *testing.T) {
	t.Parallel()
	w, out := newFakeDriver(), newLogs()
	w.onExecute = func(_ context.Context, _ *driver.Environment, _ *driver.Step, o io.Writer) (*driver.Result, error) {
		_, err := fmt.Fprintln(o, "init-hush step-hush")
		return &driver.Result{Outputs: map[string]string{"A": "init-hush", "B": "step-hush"}}, err
	}
	m := transaction.New(w, transaction.WithLedger(filepath.Join(t.TempDir(), "ledger")), transaction.WithLog(out.open))
	routes := m.Routes()
	do := func(value, typ, data string) *task.Response {
		ctx := secrets.NewContext(t.Context(), secrets.NewSet(secrets.Config{}, value))
		resp, _ := task.Serve(ctx, routes[typ], &task.Task{ID: typ, Type: typ, Data: []byte(data)})
		require.Equal(t, task.OK, resp.Code, resp.Error)
		return resp
	}
	do("init-hush", "CI_DOCKER_INITIALIZE_TASK", `{"group_id":"g"}`)
	got := do("step-hush", "CI_DOCKER_EXECUTE_TASK", `{"group_id":"g","id":"s","log_key":"k"}`)
	assert.NotContains(t, string(got.Data), "hush")
	text, _ := out.get("k")
	assert.Equal(t, "****** ******\n", text)
	require.NoError(t, m.Close(t.Context()))

	w.onInit = func(context.Context, *driver.Environment) error { return errors.New("no network for init-hush") }
	m = transaction.New(w, transaction.WithLedger(filepath.Join(t.TempDir(), "ledger")))
	routes = m.Routes()
	var failed stage.InitResponse
	require.NoError(t, json.Unmarshal(do("init-hush", "CI_DOCKER_INITIALIZE_TASK", `{"group_id":"g"}`).Data, &failed))
	assert.Contains(t, failed.ErrorMessage, "no network for ******")
	require.NoError(t, m.Close(t.Context()))
}

// Rule S3: all text that leaves a step is masked, also names of outputs and artifacts. Secrets
// include the log service's secrets of a task and the password of a registry. Content other
// than text is unchanged.
func TestEverythingThatIsTextIsMasked(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	artifact := []byte(`{"url":"http://masks-hush@127.0.0.1"}`)
	w.onExecute = func(_ context.Context, env *driver.Environment, _ *driver.Step, _ io.Writer) (*driver.Result, error) {
		return &driver.Result{
			Outputs: map[string]string{"Nmasks_hush": "registry-hush", "CUT": env.Mask("before step-hush")},
			Secrets: map[string]string{"Smasks_hush": "made"}, Artifact: artifact,
		}, nil
	}
	m := transaction.New(w, transaction.WithLedger(filepath.Join(t.TempDir(), "ledger")))
	routes := m.Routes()
	do := func(typ, data string) (got stage.ExecuteResponse) {
		resp, _ := task.Serve(t.Context(), routes[typ], &task.Task{
			ID: rand.Text(), Type: typ, Data: []byte(data), Logger: &task.Logger{Masks: []string{"masks-hush", "masks_hush"}},
		})
		require.Equal(t, task.OK, resp.Code, resp.Error)
		require.NoError(t, json.Unmarshal(resp.Data, &got))
		return got
	}
	do("local_init", `{"group_id":"g"}`)
	const step = `{"group_id":"g","id":"s","secrets":["step-hush"],"auth":{"password":"registry-hush"}}`
	got := do("local_execute", step)
	assert.Equal(t, map[string]string{"N******": "******", "CUT": "before ******"}, got.OutputVars)
	assert.Equal(t, []stage.Output{
		{Key: "CUT", Value: "before ******", Type: stage.OutputString}, {Key: "N******", Value: "******", Type: stage.OutputString},
		{Key: "S******", Value: "made", Type: stage.OutputSecret},
	}, got.Outputs)
	assert.JSONEq(t, `{"url":"http://******@127.0.0.1"}`, string(got.Artifact))
	artifact = append([]byte{0xff, 0}, "masks-hush"...)
	assert.Equal(t, artifact, do("local_execute", step).Artifact)
	require.NoError(t, m.Close(t.Context()))
}
