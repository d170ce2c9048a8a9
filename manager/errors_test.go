package manager_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
)

func TestCallersTellErrorsApart(t *testing.T) {
	t.Parallel()
	m, err := manager.New(manager.Config{Accounts: map[string]string{"demo": "00000000000000000000000000000000"}})
	require.NoError(t, err)
	require.ErrorIs(t, m.Drain(t.Context(), "demo", "no-such-delegate", true), manager.ErrNotFound)
	require.NoError(t, m.Close())
	require.ErrorIs(t, m.Pause(t.Context(), true, "demo"), manager.ErrClosed)
}
