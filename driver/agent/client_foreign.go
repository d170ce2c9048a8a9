package agent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/envelope"
	"github.com/delegate-io/dlite/task/stage"
)

// foreignSetup returns the request for a foreign agent.
func foreignSetup(req *SetupRequest) *SetupRequest {
	r := *req
	r.Volumes = append(slices.Clone(r.Volumes), envelope.WorkspaceVolume())
	r.Files = slices.Clone(r.Files)
	for i, f := range r.Files {
		if f != nil {
			there := *f
			there.Path = envelope.InWorkspace(f.Path)
			r.Files[i] = &there
		}
	}
	return &r
}

// checkForeign returns an error for a feature that a foreign agent would silently ignore.
func checkForeign(req *StartStepRequest) error {
	switch {
	case req.Plugin != nil:
		return errors.New("this agent cannot fetch plugins")
	case req.Ready != nil:
		return errors.New("this agent cannot report when a background step is ready")
	case len(req.VolumesActual) > 0:
		return errors.New("this agent cannot create volumes for a step: name them in the init")
	case len(req.Ulimits) > 0:
		return errors.New("this agent cannot limit processes by ulimits")
	}
	return nil
}

// foreignStep always sends mount_docker_socket: a foreign agent mounts the engine's socket if the
// field is missing.
type foreignStep struct {
	StartStepRequest
	MountDockerSocket bool `json:"mount_docker_socket"`
}

// foreignRequest returns the request for a foreign agent, and the files through which the step hands
// on values. Such an agent returns neither for a step whose output the client receives, so the client
// reads the files itself. The files are nil for a step that the agent reports to the manager, and for a
// step of a Windows shell: then the agent returns the outputs, and its log service gets the log.
func foreignRequest(ctx context.Context, req *StartStepRequest) (*foreignStep, *foreignFiles) {
	r := *req
	r.ID, r.Key = req.stepKey(), ""
	r.Environment = maps.Clone(r.Environment)
	if r.Environment == nil {
		r.Environment = map[string]string{} // a foreign agent hangs without it
	}
	if r.Kind == "" {
		r.Kind = "Run"
	}
	if r.StepStatus == nil {
		r.StageRuntimeID = "" // otherwise no poll would be answered
	}
	r.WorkingDir = envelope.InWorkspace(r.WorkingDir)
	if r.Image != "" {
		r.Volumes = append(slices.Clone(r.Volumes), envelope.WorkspaceMount())
	}
	if deadline, ok := ctx.Deadline(); ok && !r.Detach { // without a time-out the step would run on
		left := max(1, int((time.Until(deadline)+time.Second-1)/time.Second))
		if r.Timeout == 0 || left < r.Timeout {
			r.Timeout = left
		}
	}
	r.ProcessConfig = &stage.ProcessConfig{KillProcessOnContextCancel: true}
	files := handOverFiles(&r)
	if files != nil {
		r.LogDrone, r.LogConfig, r.LogKey = true, nil, ""
	} else {
		r.LogDrone = r.StepStatus == nil && len(r.OutputVars)+len(r.Outputs) == 0 && r.OutputVarFile == "" && r.SecretVarFile == ""
	}
	return &foreignStep{StartStepRequest: r, MountDockerSocket: r.MountDockerSocket}, files
}

// foreignInternalError is the exit code of an internal error at foreign agents. A step can exit
// with it, too.
const foreignInternalError = 255

// foreignResult converts the answer of a foreign agent.
func foreignResult(a *pollStepResponse) (*driver.Result, error) {
	if a.ExitCode < 0 {
		return nil, &endingError{text: cmp.Or(a.Error, "a signal ended the step")}
	}
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
