package testbed_test

import (
	"context"
	"testing"

	"github.com/docker/docker/api/types/container"
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

// The image also has the links that maintainers' scripts create, at the paths where programs
// look for them.
func TestADebianImageRunsItsPrograms(t *testing.T) {
	t.Parallel()
	engine := testbed.Docker(t)
	ref := engine.Debian(t, "gcc", "git", "libc6-dev", "make", "redis-server", "redis-tools")
	c, err := engine.Client.ContainerCreate(t.Context(), &container.Config{Image: ref, Cmd: []string{"sh", "-ec", `
		echo 'int main(void) { return 0; }' >/tmp/main.c
		cc -o /tmp/main /tmp/main.c && /tmp/main
		git --version; make --version; redis-server --version; awk 'BEGIN { exit 0 }'; /bin/bash -c true; [ -e /lib64/ld-linux-x86-64.so.2 -o -e /lib/ld-linux-aarch64.so.1 ]
	`}}, &container.HostConfig{NetworkMode: "none"}, nil, nil, "")
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, engine.Client.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true}))
	})
	ended, failed := engine.Client.ContainerWait(t.Context(), c.ID, container.WaitConditionNextExit)
	require.NoError(t, engine.Client.ContainerStart(t.Context(), c.ID, container.StartOptions{}))
	select {
	case end := <-ended:
		require.Zero(t, end.StatusCode)
	case err := <-failed:
		require.NoError(t, err)
	}
}
