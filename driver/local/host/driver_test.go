package host_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/task/stage"
)

type ledger struct{ records []driver.Resource }

func (l *ledger) Record(_ context.Context, r driver.Resource) error {
	l.records = append(l.records, r)
	return nil
}

// The conformance suite of package local covers the steps that this driver runs.
func TestAStepWithAnImageIsRefused(t *testing.T) {
	t.Parallel()
	d, err := host.New(host.Config{WorkDir: t.TempDir(), MemoryDir: t.TempDir()})
	require.NoError(t, err)
	env, l := &driver.Environment{ID: "stage-1"}, &ledger{}
	require.NoError(t, d.Init(t.Context(), env, l))
	step := &driver.Step{Step: stage.Step{ID: "s", Image: "busybox"}}
	_, err = d.Execute(t.Context(), env, step, io.Discard, l)
	require.EqualError(t, err, `step "s": the step has an image, and this driver runs no containers`)
	container := driver.Resource{Kind: "container", ID: "dlite-000000000000-0000000000000000-s-0000"}
	_, err = d.Reattach(t.Context(), env, step, io.Discard, l, []driver.Resource{container})
	require.ErrorIs(t, err, driver.ErrNotBegun)
	left, err := d.Cleanup(t.Context(), append(l.records, container))
	require.ErrorContains(t, err, `kind "container" is not known to this driver`)
	require.Equal(t, []driver.Resource{container}, left)
	require.NoError(t, d.Close())
}
