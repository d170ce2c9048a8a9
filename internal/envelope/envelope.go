// Package envelope has the payloads of the tasks DLITE_CI_VM_... (docs/protocol.md, section 3): each
// is an envelope around a payload of package task/stage. It also has the workspace that steps need on the
// machines of these tasks if the agent there was written by others.
package envelope

import (
	"cmp"
	"strconv"

	"github.com/delegate-io/dlite/task/stage"
)

// Init is the data of a DLITE_CI_VM_INITIALIZE_TASK: the envelope of an init
// (docs/protocol.md 3).
type Init struct {
	Setup struct {
		ID      string            `json:"id"`
		PoolID  string            `json:"pool_id,omitempty"`
		Tags    map[string]string `json:"tags,omitempty"`
		Context struct {
			AccountID string `json:"account_id,omitempty"`
		} `json:"context"`
		LogKey string            `json:"log_key,omitempty"`
		Setup  stage.InitRequest `json:"setup_request"`
	} `json:"setup_vm_request"`
	// Services run in the background until the cleanup.
	Services    []*Step `json:"services,omitempty"`
	Distributed bool    `json:"distributed,omitempty"`
}

// Init returns the enclosed init. The id of the stage becomes the transaction id.
func (r *Init) Init() stage.InitRequest {
	in := r.Setup.Setup
	in.GroupID = cmp.Or(r.Setup.ID, in.GroupID)
	in.LogKey = cmp.Or(in.LogKey, r.Setup.LogKey)
	in.Network = in.Network.InPool(r.Setup.PoolID)
	return in
}

// Execute is the data of a DLITE_CI_VM_EXECUTE_TASK or ..._V2.
type Execute struct {
	Execute Step `json:"execute_step_request"`
}

// Step is the envelope of a step, or of a service of an [Init].
type Step struct {
	StageRuntimeID string               `json:"stage_runtime_id"`
	TaskID         string               `json:"task_id,omitempty"`
	Distributed    bool                 `json:"distributed,omitempty"`
	IPAddress      string               `json:"ip_address,omitempty"`
	Start          stage.ExecuteRequest `json:"start_step_request"`
}

// Step returns the enclosed step without its StepStatus: the delegate answers the
// task, so the agent must not report.
func (r *Execute) Step() stage.ExecuteRequest {
	e := r.Execute.Start
	e.GroupID = cmp.Or(r.Execute.StageRuntimeID, e.GroupID)
	e.StepStatus = nil
	return e
}

// Service returns service i as a background step of the init's transaction. A
// service without an id gets "service-" and its index as id.
func (r *Init) Service(i int) stage.ExecuteRequest {
	var e stage.ExecuteRequest
	if r.Services[i] != nil {
		e = r.Services[i].Start
	}
	in := r.Init()
	e.GroupID, e.Detach, e.StepStatus = in.TransactionID(), true, nil
	if e.ID == "" {
		e.ID = "service-" + strconv.Itoa(i)
	}
	return e
}

// Cleanup is the data of a DLITE_CI_VM_CLEANUP_TASK or ..._V2.
type Cleanup struct {
	PoolID         string `json:"pool_id,omitempty"`
	StageRuntimeID string `json:"stage_runtime_id"`
	Distributed    bool   `json:"distributed,omitempty"`
}

// Cleanup returns the enclosed cleanup.
func (r *Cleanup) Cleanup() stage.CleanupRequest {
	return stage.CleanupRequest{GroupID: r.StageRuntimeID}
}

// Capacity is the data of a DLITE_CI_VM_CAPACITY_TASK. It reserves a machine of
// the pool for the stage with the id.
type Capacity struct {
	Reservation struct {
		ID     string `json:"id"`
		PoolID string `json:"pool_id,omitempty"`
		// Timeout is the time for which the machine waits for the init, in
		// milliseconds.
		Timeout int64 `json:"timeout,omitempty"`
	} `json:"capacity_reservation_request"`
}

// CapacityResponse answers a DLITE_CI_VM_CAPACITY_TASK. The status is Success also
// if all machines are in use: the stage then has a place in the queue, see
// [Reservation].
type CapacityResponse struct {
	Status       stage.Status       `json:"command_execution_status"`
	ErrorMessage string             `json:"error_message,omitempty"`
	InfraType    string             `json:"infra_type,omitempty"`
	DelegateMeta stage.DelegateMeta `json:"delegate_meta_info"`
	Reservation  *Reservation       `json:"capacity_reservation,omitempty"`
}

// Reservation is the reservation of a stage. It has only the stage id if
// no reservation is necessary: the driver has no pools, or the init has arrived.
type Reservation struct {
	StageID  string `json:"stage_id"`
	PoolName string `json:"pool_name,omitempty"`
	// InstanceID is the id of the machine, empty while all machines are in use.
	// Place is then the position in the queue, from 1. Place is an extension.
	InstanceID string `json:"instance_id,omitempty"`
	Place      int    `json:"place,omitempty"`
	// ExpiresAt is the time at which the reservation ends without an init, in Unix
	// milliseconds. It is an extension.
	ExpiresAt int64 `json:"expires_at,omitempty"`
}
