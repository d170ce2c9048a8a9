package provider_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/vm/internal/provider"
)

// Rule D6: a Destroy stops only the Create of its machine.
func TestADestroyEndsTheRunningCreate(t *testing.T) {
	t.Parallel()
	var c provider.Creating
	require.NoError(t, c.Stop(t.Context(), "dlite-a"))
	a, endA, err := c.Begin(t.Context(), "dlite-a")
	require.NoError(t, err)
	b, endB, err := c.Begin(t.Context(), "dlite-b")
	require.NoError(t, err)
	_, _, err = c.Begin(t.Context(), "dlite-a")
	require.Error(t, err)

	given, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Stop(given, "dlite-a"), context.Canceled, "it does not wait for ever")
	<-a.Done()
	require.ErrorIs(t, context.Cause(a), provider.ErrDestroyed)
	require.NoError(t, b.Err())

	stopped := make(chan error, 1)
	go func() { stopped <- c.Stop(t.Context(), "dlite-a") }()
	endA()
	require.NoError(t, <-stopped)
	endB()
	_, end, err := c.Begin(t.Context(), "dlite-a")
	require.NoError(t, err, "the previous one has ended")
	end()
}
