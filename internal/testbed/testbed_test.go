package testbed_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

func TestRequiredReadsTheList(t *testing.T) {
	for list, want := range map[string]bool{"": false, "docker": true, "redis, docker": true, "all": true, "dockerx": false} {
		t.Setenv(testbed.RequireVariable, list)
		require.Equal(t, want, testbed.Required("docker"), list)
	}
}

func TestDockerGivesAnEngineWithTheImage(t *testing.T) {
	t.Parallel()
	engine := testbed.Docker(t)
	engine.LeavesNothing(t, "no such transaction")
	_, err := engine.Client.ImageInspect(t.Context(), engine.Image)
	require.NoError(t, err)
	require.Empty(t, engine.Leftovers(t, "no such transaction"))
}
