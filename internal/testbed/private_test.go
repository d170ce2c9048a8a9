//go:build linux

package testbed_test

import (
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

// Tests of restarts rely on this: a killed engine leaves its containers running, and after a
// start it has its images again.
func TestPrivateEngineComesBackAfterAKill(t *testing.T) {
	t.Parallel()
	p := testbed.PrivateEngine(t, "--live-restore")
	c, err := p.Client.ContainerCreate(t.Context(), &container.Config{Image: p.Image, Cmd: []string{"sleep", "600"}}, nil, nil, nil, "")
	require.NoError(t, err)
	require.NoError(t, p.Client.ContainerStart(t.Context(), c.ID, container.StartOptions{}))
	p.Kill()
	_, err = p.Client.Ping(t.Context())
	require.Error(t, err)
	p.Start()
	info, err := p.Client.ContainerInspect(t.Context(), c.ID)
	require.NoError(t, err)
	require.True(t, info.State.Running)
	p.Stop()
	p.Start()
	_, err = p.Client.ImageInspect(t.Context(), p.Image)
	require.NoError(t, err)
}
