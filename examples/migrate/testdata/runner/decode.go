package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/wings-software/dlite/client"
	"github.com/wings-software/dlite/httphelper"
)

// decodeTask reads a task and its payload. It answers a request that is not valid.
func decodeTask(w http.ResponseWriter, r *http.Request, into any) (*client.Task, bool) {
	task := &client.Task{}
	if err := json.NewDecoder(r.Body).Decode(task); err != nil {
		httphelper.WriteBadRequest(w, fmt.Errorf("could not decode the task: %w", err))
		return nil, false
	}
	// Unmarshal the task data
	data, err := task.Data.MarshalJSON()
	if err != nil {
		httphelper.WriteBadRequest(w, err)
		return nil, false
	}
	if err := json.Unmarshal(data, into); err != nil {
		httphelper.WriteBadRequest(w, fmt.Errorf("could not decode the payload of %s: %w", task.Type, err))
		return nil, false
	}
	return task, true
}

func (r *setupRequest) validate() error {
	s := &r.SetupVMRequest
	switch {
	case s.ID == "":
		return errors.New("setup_vm_request.id is empty")
	case s.PoolID == "":
		return errors.New("setup_vm_request.pool_id is empty")
	case len(s.Setup.Files) > 1000:
		return fmt.Errorf("setup_request.files has %d files", len(s.Setup.Files))
	}
	for i, f := range s.Setup.Files {
		if !filepath.IsLocal(f.Path) {
			return fmt.Errorf("setup_request.files[%d]: the path %q leaves the instance", i, f.Path)
		}
	}
	return validateEnvs(s.Setup.Envs)
}

func (r *executeRequest) validate() error {
	e := &r.ExecuteVMRequest
	switch {
	case e.StageRuntimeID == "":
		return errors.New("execute_step_request.stage_runtime_id is empty")
	case e.Step.ID == "":
		return errors.New("start_step_request.id is empty")
	case len(e.Step.Run.Entrypoint)+len(e.Step.Run.Command) == 0:
		return errors.New("start_step_request.run is empty")
	case e.Step.Timeout < 0:
		return fmt.Errorf("start_step_request.timeout %d is negative", e.Step.Timeout)
	case e.Step.WorkingDir != "" && !filepath.IsLocal(e.Step.WorkingDir):
		return fmt.Errorf("start_step_request.working_dir %q leaves the instance", e.Step.WorkingDir)
	}
	return validateEnvs(e.Step.Envs)
}

func (r *cleanupRequest) validate() error {
	if r.StageRuntimeID == "" {
		return errors.New("stage_runtime_id is empty")
	}
	return nil
}

func (r *capacityRequest) validate() error {
	if r.PoolID == "" {
		return errors.New("pool_id is empty")
	}
	return nil
}

func (r *logRequest) validate() error {
	switch {
	case r.StageRuntimeID == "" || r.StepID == "":
		return errors.New("stage_runtime_id or step_id is empty")
	case r.From < 0:
		return fmt.Errorf("from %d is negative", r.From)
	}
	return nil
}

func validateEnvs(envs map[string]string) error {
	for name, value := range envs {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("the variable name %q is not valid", name)
		}
		if strings.ContainsRune(value, 0) {
			return fmt.Errorf("the variable %s holds a zero byte", name)
		}
	}
	return nil
}

// failed is an answer of a stage that could not go on. The task itself is answered.
func failed(err error) vmResponse {
	return vmResponse{CommandExecutionStatus: failure, ErrorMessage: err.Error()}
}
