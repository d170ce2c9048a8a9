package main

import (
	"errors"
	"time"

	"github.com/wings-software/dlite/client"
)

var (
	errUnknownStage = errors.New("the stage is not known")
	errUnknownPool  = errors.New("the pool is not known")
	errPoolFull     = errors.New("the pool has no free instance")
	errGone         = errors.New("the instance is gone")
)

// commandStatus is the status of an init, a step or a cleanup.
type commandStatus string

const (
	success commandStatus = "SUCCESS"
	failure commandStatus = "FAILURE"
	timeout commandStatus = "TIMEOUT"
)

// delegateMetaInfo names the delegate of a stage.
type delegateMetaInfo struct {
	HostName string `json:"host_name"`
	ID       string `json:"id"`
}

// vmResponse is the answer to each task.
type vmResponse struct {
	IPAddress              string            `json:"ip_address"`
	CommandExecutionStatus commandStatus     `json:"command_execution_status"`
	ErrorMessage           string            `json:"error_message"`
	DelegateMetaInfo       delegateMetaInfo  `json:"delegate_meta_info"`
	OutputVars             map[string]string `json:"output_vars"`
	PoolDriverUsed         string            `json:"pool_driver_used"`
	ExitCode               int               `json:"exit_code,omitempty"`
	ServiceStatuses        []serviceStatus   `json:"service_statuses"`
}

type serviceStatus struct {
	ID     string        `json:"identifier"`
	Status commandStatus `json:"status"`
}

// setupRequest is the payload of an init.
type setupRequest struct {
	SetupVMRequest struct {
		ID      string            `json:"id"`
		PoolID  string            `json:"pool_id"`
		Tags    map[string]string `json:"tags"`
		LogKey  string            `json:"log_key"`
		Context requestContext    `json:"context"`
		Setup   struct {
			Envs    map[string]string `json:"envs"`
			Secrets []string          `json:"secrets"`
			Files   []fileSpec        `json:"files"`
		} `json:"setup_request"`
	} `json:"setup_vm_request"`
	Services []serviceSpec `json:"services"`
}

type requestContext struct {
	AccountID string `json:"account_id"`
	StageID   string `json:"stage_id"`
}

type fileSpec struct {
	Path  string `json:"path"`
	Data  string `json:"data"`
	Mode  uint32 `json:"mode"`
	IsDir bool   `json:"is_dir"`
}

type serviceSpec struct {
	ID    string   `json:"identifier"`
	Image string   `json:"image"`
	Run   []string `json:"run"`
}

// executeRequest is the payload of a step.
type executeRequest struct {
	ExecuteVMRequest struct {
		StageRuntimeID string         `json:"stage_runtime_id"`
		TaskID         string         `json:"task_id"`
		Context        requestContext `json:"context"`
		Step           stepSpec       `json:"start_step_request"`
	} `json:"execute_step_request"`
}

type stepSpec struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Envs       map[string]string `json:"environment"`
	WorkingDir string            `json:"working_dir"`
	Timeout    int               `json:"timeout"`
	Detach     bool              `json:"detach"`
	OutputVars []string          `json:"output_vars"`
	Secrets    []string          `json:"secrets"`
	Run        struct {
		Entrypoint []string `json:"entrypoint"`
		Command    []string `json:"commands"`
	} `json:"run"`
	Status *statusConfig `json:"step_status"`
}

// statusConfig makes the agent report the end of a step by itself.
type statusConfig struct {
	Endpoint   string `json:"endpoint"`
	AccountID  string `json:"account_id"`
	Token      string `json:"token"`
	TaskID     string `json:"task_id"`
	DelegateID string `json:"delegate_id"`
	Runner     bool   `json:"runner_response"`
}

// cleanupRequest is the payload of a cleanup.
type cleanupRequest struct {
	PoolID         string `json:"pool_id"`
	StageRuntimeID string `json:"stage_runtime_id"`
}

// capacityRequest asks whether a stage fits.
type capacityRequest struct {
	ID     string `json:"id"`
	PoolID string `json:"pool_id"`
}

// logRequest asks for the output of a step.
type logRequest struct {
	StageRuntimeID string `json:"stage_runtime_id"`
	StepID         string `json:"step_id"`
	From           int    `json:"from"`
}

// stage is an open stage.
type stage struct {
	ID       string            `json:"id"`
	Pool     string            `json:"pool"`
	Instance string            `json:"instance"`
	Envs     map[string]string `json:"-"`
	Secrets  []string          `json:"-"`
	Created  time.Time         `json:"created"`
	Steps    []string          `json:"steps"`
	// owner is the delegate that the manager chose.
	owner client.DelegateInfo
	logs  client.LogInfo
}
