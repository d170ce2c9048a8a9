package agent

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// workspace is the folder that the steps of a stage share, which another agent than
// ours does not make by itself. Steps without a working directory run there, as it
// wants to be told of one (PROTOCOL 5).
const (
	workspace       = "/tmp/dlite-workspace"
	workspaceVolume = "dlite-workspace"
)

// inWorkspace is a path where another agent finds it.
func inWorkspace(p string) string {
	if strings.HasPrefix(p, `\`) || len(p) > 1 && p[1] == ':' || path.IsAbs(p) {
		return p
	}
	return path.Join(workspace, p)
}

// setupForOthers is a request as another agent wants it.
func setupForOthers(req *SetupRequest) *SetupRequest {
	r := *req
	r.Volumes = append(slices.Clone(r.Volumes), &stage.Volume{Host: &stage.HostVolume{
		ID: workspaceVolume, Name: workspaceVolume, Path: workspace, Create: true, Remove: true,
	}})
	r.Files = slices.Clone(r.Files)
	for i, f := range r.Files {
		if f != nil {
			there := *f
			there.Path = inWorkspace(f.Path)
			r.Files[i] = &there
		}
	}
	return &r
}

// unable says what of a step another agent would leave out without a word.
func unable(req *StartStepRequest) error {
	switch {
	case req.Plugin != nil:
		return errors.New("this agent cannot fetch plugins")
	case req.Ready != nil:
		return errors.New("this agent cannot tell when a background step is ready")
	case len(req.VolumesActual) > 0:
		return errors.New("this agent makes no volumes for a step: name them in the init")
	case len(req.Ulimits) > 0:
		return errors.New("this agent cannot limit processes by ulimits")
	}
	return nil
}

// foreignStep says also that no socket is to be mounted: another agent mounts the
// engine's where nothing is said.
type foreignStep struct {
	StartStepRequest
	MountDockerSocket bool `json:"mount_docker_socket"`
}

// forOthers is a request as another agent wants it. The output comes here, unless the
// step hands something on, which such an agent tells only of steps whose output goes to
// a log service.
func forOthers(req *StartStepRequest) *foreignStep {
	r := *req
	r.ID, r.Key = req.StepKey(), ""
	if r.Environment == nil {
		r.Environment = map[string]string{} // it hangs without one
	}
	if r.Kind == "" {
		r.Kind = "Run"
	}
	if r.StepStatus == nil {
		r.StageRuntimeID = "" // nobody would ever be told of its end
	}
	r.WorkingDir = inWorkspace(r.WorkingDir)
	if r.Image != "" {
		r.Volumes = append(slices.Clone(r.Volumes), &stage.VolumeMount{Name: workspaceVolume, Path: workspace})
	}
	r.ProcessConfig = &stage.ProcessConfig{KillProcessOnContextCancel: true}
	r.LogDrone = len(r.OutputVars) == 0 && len(r.Outputs) == 0 && r.OutputVarFile == "" && r.SecretVarFile == "" && r.StepStatus == nil
	return &foreignStep{StartStepRequest: r, MountDockerSocket: r.MountDockerSocket}
}

// foreignInternalError is the exit code by which other agents say that something went
// wrong that is no step's end; so may a step.
const foreignInternalError = 255

// foreignResult reads the answer of another agent (PROTOCOL 5).
func foreignResult(a *PollStepResponse) (*driver.Result, error) {
	internal := a.ExitCode == foreignInternalError && !strings.Contains(a.Error, "exit status 255") || a.ExitCode == 0
	if internal && a.Error != "" && !a.OOMKilled {
		return nil, &endingError{text: a.Error, timeout: strings.Contains(a.Error, context.DeadlineExceeded.Error())}
	}
	res := &driver.Result{
		ExitCode: a.ExitCode, OOMKilled: a.OOMKilled, Detached: !a.Exited,
		Outputs: maps.Clone(a.Outputs), Env: a.Envs, Artifact: a.Artifact,
	}
	for _, o := range a.OutputV2 {
		to := &res.Outputs
		if o.Type == stage.OutputSecret {
			to = &res.Secrets
			delete(res.Outputs, o.Key)
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[o.Key] = o.Value
	}
	return res, nil
}
