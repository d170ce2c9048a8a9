//go:build unix

package local_test

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
)

// Rules T2 and T3: another process finds resources without a record by their labels, and finds no
// foreign resources.
func TestResourcesWithoutRecordsAreFoundByTheirLabels(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.env.Labels = map[string]string{driver.LabelTransaction: r.env.ID, driver.LabelDelegate: "finder"}
	r.init()
	background := in(engine.ImageWith(t, "VOLUME /data"), sh("background", "sleep 600"))
	background.Detach = true
	r.run(background)

	// A foreign container with the same labels and another name.
	foreign, err := engine.Client.ContainerCreate(t.Context(), &container.Config{
		Image: engine.Image, Cmd: []string{"true"}, Labels: r.env.Labels,
	}, nil, nil, nil, "")
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = engine.Client.ContainerRemove(context.WithoutCancel(t.Context()), foreign.ID, container.RemoveOptions{Force: true}) // the test may have removed it
	})

	other, err := newDriver(withWorkDir(t.TempDir()))
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	found, err := other.Find(t.Context(), r.env.Labels)
	require.NoError(t, err)
	var kinds []string
	for _, f := range found {
		kinds = append(kinds, f.Kind)
		assert.Equal(t, r.env.ID, f.Labels[driver.LabelTransaction])
	}
	slices.Sort(kinds)
	assert.Equal(t, []string{"container", "network", "volume"}, kinds)
	for name, labels := range map[string]map[string]string{
		"none": nil, "an empty value": {driver.LabelDelegate: ""}, "an empty name": {"": "x"},
		"another delegate's": {driver.LabelTransaction: r.env.ID, driver.LabelDelegate: "other"},
	} {
		nothing, err := other.Find(t.Context(), labels)
		require.NoError(t, err)
		assert.Empty(t, nothing, name)
	}

	left, err := other.Cleanup(t.Context(), found)
	require.NoError(t, err)
	assert.Empty(t, left)
	found, err = other.Find(t.Context(), maps.Clone(r.env.Labels))
	require.NoError(t, err)
	assert.Empty(t, found)
	_, err = engine.Client.ContainerInspect(t.Context(), foreign.ID)
	require.NoError(t, err, "a foreign container is still there")
	require.NoError(t, engine.Client.ContainerRemove(t.Context(), foreign.ID, container.RemoveOptions{Force: true}))
}

// A machine without an engine has nothing to find, and a cleanup without records succeeds.
func TestWithoutAnEngineNothingIsFound(t *testing.T) {
	t.Parallel()
	d, err := newDriver(withWorkDir(t.TempDir()), withDockerHost("unix://"+filepath.Join(t.TempDir(), "none.sock")))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	found, err := d.Find(t.Context(), map[string]string{driver.LabelDelegate: "x"})
	require.NoError(t, err)
	assert.Empty(t, found)
}
