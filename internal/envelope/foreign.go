package envelope

import (
	"path"
	"strings"

	"github.com/delegate-io/dlite/task/stage"
)

// Workspace is the directory that the steps of a stage share on a machine with a foreign agent. Such an
// agent creates no workspace, and scans the whole disk after a step without a working directory.
const Workspace = "/tmp/dlite-workspace"

const workspaceVolume = stage.WorkspaceVolume

// WorkspaceVolume returns the volume of the workspace, for the setup of a foreign agent.
func WorkspaceVolume() *stage.Volume {
	return &stage.Volume{Host: &stage.HostVolume{ID: workspaceVolume, Name: workspaceVolume, Path: Workspace, Create: true, Remove: true}}
}

// WorkspaceMount returns the mount of the workspace, for a container step at a foreign agent.
func WorkspaceMount() *stage.VolumeMount {
	return &stage.VolumeMount{Name: workspaceVolume, Path: Workspace}
}

// InWorkspace returns p as an absolute path of a machine with a foreign agent, which may run Unix or
// Windows.
func InWorkspace(p string) string {
	if path.IsAbs(p) || strings.HasPrefix(p, `\`) || len(p) > 1 && p[1] == ':' {
		return p
	}
	return path.Join(Workspace, p)
}
