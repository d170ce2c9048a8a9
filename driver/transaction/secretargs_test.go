package transaction_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// Rule S5: the driver learns that a command holds a secret of the step or of the transaction,
// in any encoding.
func TestADriverLearnsThatACommandHoldsASecret(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	secret := make(chan bool, 1)
	w.onExecute = func(_ context.Context, _ *driver.Environment, s *driver.Step, _ io.Writer) (*driver.Result, error) {
		secret <- s.SecretCommand
		return &driver.Result{}, nil
	}
	s := newStages(t, w)
	s.run(t.Context(), "local_init", stage.InitRequest{GroupID: "tx", Secrets: []string{"of-the-stage", "7q"}})
	for _, tt := range []struct {
		run  stage.Run
		want bool
	}{
		{stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{"echo hello"}}, false},
		{stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{"echo of-the-stage"}}, true},
		{stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{"echo b2YtdGhlLXN0ZXA= | base64 -d"}}, true},
		{stage.Run{Entrypoint: []string{"of-the-step"}}, true},
		{stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{"login --pin=7q"}}, true}, // too short for a mask
		{stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{"echo 07q 7qs"}}, false},
	} {
		r := s.run(t.Context(), "local_execute", stage.ExecuteRequest{
			GroupID: "tx", Step: stage.Step{ID: "s", Run: tt.run, Secrets: []string{"of-the-step"}},
		})
		require.Equal(t, stage.Success, statusOf(r), string(r.Data))
		assert.Equal(t, tt.want, <-secret, "%v", tt.run)
	}
}
