package manager_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
)

func TestCallersTellErrorsApart(t *testing.T) {
	t.Parallel()
	m, err := manager.New(manager.Config{Accounts: map[string]string{"demo": "00000000000000000000000000000000"}})
	require.NoError(t, err)
	require.ErrorIs(t, m.Drain(t.Context(), "demo", "no-such-delegate", true), manager.ErrNotFound)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, m.Pause(ended, true, "demo"), manager.ErrUnavailable)
	require.NoError(t, m.Close())
	require.ErrorIs(t, m.Pause(t.Context(), true, "demo"), manager.ErrClosed)
}
