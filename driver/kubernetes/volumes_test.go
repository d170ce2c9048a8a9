package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/delegate-io/dlite/task/stage"
)

// A volume of the transaction with the name of the workspace is another volume.
func TestAStepMountsTheWorkspaceAtASecondPath(t *testing.T) {
	t.Parallel()
	step := &stage.Step{Volumes: []*stage.VolumeMount{{Name: stage.WorkspaceVolume, Path: "/drone/src/"}}}
	for name, c := range map[string]struct {
		volumes []*stage.Volume
		want    string
		made    int
	}{
		"workspace":  {nil, "dlite-workspace", 0},
		"other":      {[]*stage.Volume{{Temp: &stage.TempVolume{ID: "x"}}}, "dlite-workspace", 1},
		"own volume": {[]*stage.Volume{{Temp: &stage.TempVolume{ID: stage.WorkspaceVolume}}}, "", 1},
	} {
		byName, made, err := volumesOf(c.volumes)
		require.NoError(t, err, name)
		assert.Len(t, made, c.made, name)
		list, err := mounts(step, byName)
		require.NoError(t, err, name)
		if name == "own volume" {
			assert.Equal(t, made[0].Name, list[0].Name)
			continue
		}
		assert.Equal(t, []corev1.VolumeMount{{Name: c.want, MountPath: "/drone/src"}}, list, name)
	}
}
