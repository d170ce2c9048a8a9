package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

func TestAStageMayNarrowTheNodesOfTheConfiguration(t *testing.T) {
	t.Parallel()
	d := &Driver{cfg: Config{AgentImage: "agent", NodeSelector: map[string]string{"team": "build"}}}
	pod := func(labels map[string]string) (map[string]string, error) {
		env := &driver.Environment{ID: "t", Network: stage.Network{}.OnNode(labels)}
		made, err := d.makePod(&draft{name: "pod", env: env})
		if err != nil {
			return nil, err
		}
		return made.Spec.NodeSelector, nil
	}
	got, err := pod(map[string]string{"disk": "fast", "team": "build"})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"disk": "fast", "team": "build"}, got)
	got, err = pod(nil)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"team": "build"}, got)
	for want, labels := range map[string]map[string]string{
		`for nodes with "build"`: {"team": "deploy"}, "that is no label": {"no label": "x"},
	} {
		_, err = pod(labels)
		require.ErrorContains(t, err, want)
	}
	assert.Equal(t, map[string]string{"team": "build"}, d.cfg.NodeSelector, "the configuration is not changed")
}
