package transaction_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// Rule S5: engines keep labels on the disk.
func TestALabelShowsNoSecret(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	var ran atomic.Int64
	w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
		ran.Add(1)
		return &driver.Result{}, nil
	}
	s := newStages(t, w)
	s.run(t.Context(), "local_init", stage.InitRequest{GroupID: "tx", Secrets: []string{"of-the-stage"}})
	for _, labels := range []map[string]string{{"a": "x of-the-stage"}, {"of-the-stage": "a"}, {"a": "b2YtdGhlLXN0YWdl"}} {
		r := s.run(t.Context(), "local_execute", stage.ExecuteRequest{GroupID: "tx", Step: stage.Step{ID: "s", Labels: labels}})
		require.Equal(t, stage.Failure, statusOf(r), string(r.Data))
		assert.Contains(t, string(r.Data), "of the step shows a secret")
		assert.NotContains(t, string(r.Data), "of-the-stage")
	}
	assert.Zero(t, ran.Load())
	r := s.run(t.Context(), "local_execute", stage.ExecuteRequest{GroupID: "tx", Step: stage.Step{ID: "s", Labels: map[string]string{"a": "b"}}})
	require.Equal(t, stage.Success, statusOf(r), string(r.Data))
}

// Rule S5: engines and clusters keep the labels of networks, volumes and machines on the disk.
func TestAnInitWhoseLabelShowsASecretFailsBeforeTheDriverStarts(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	var began atomic.Int64
	w.onInit = func(context.Context, *driver.Environment) error {
		began.Add(1)
		return nil
	}
	s := newStages(t, w)
	show := map[string]string{"a": "x of-the-stage"}
	for place, req := range map[string]stage.InitRequest{
		`label \"a\" of network.labels`:         {Network: stage.Network{Labels: show}},
		`label \"******\" of network.labels`:    {Network: stage.Network{Labels: map[string]string{"of-the-stage": "a"}}},
		`option \"a\" of network.options`:       {Network: stage.Network{Options: map[string]string{"a": "b2YtdGhlLXN0YWdl"}}},
		`label \"a\" of volumes[0].temp.labels`: {Volumes: []*stage.Volume{{Temp: &stage.TempVolume{ID: "v", Labels: show}}}},
		`label \"a\" of volumes[1].host.labels`: {Volumes: []*stage.Volume{{Temp: &stage.TempVolume{ID: "v"}}, {Host: &stage.HostVolume{ID: "h", Labels: show}}}},
	} {
		req.GroupID, req.Secrets = place, []string{"of-the-stage"}
		r := s.run(t.Context(), "local_init", req)
		require.Equal(t, stage.Failure, statusOf(r), string(r.Data))
		assert.Contains(t, string(r.Data), place+" shows a secret")
		assert.NotContains(t, string(r.Data), "of-the-stage")
	}
	assert.Zero(t, began.Load())
	r := s.run(t.Context(), "local_init", stage.InitRequest{
		GroupID: "tx", Secrets: []string{"of-the-stage"}, Network: stage.Network{Labels: map[string]string{"a": "b"}},
	})
	require.Equal(t, stage.Success, statusOf(r), string(r.Data))
}

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
