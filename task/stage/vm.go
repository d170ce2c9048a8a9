package stage

import (
	"cmp"
	"strconv"
)

// PoolOption is the network option that names the pool of machines of a
// transaction.
const PoolOption = "pool_id"

// VMInit is the data of a DLITE_CI_VM_INITIALIZE_TASK: the envelope of an init
// (docs/protocol.md 3).
type VMInit struct {
	Setup struct {
		ID      string            `json:"id"`
		PoolID  string            `json:"pool_id,omitempty"`
		Tags    map[string]string `json:"tags,omitempty"`
		Context struct {
			AccountID string `json:"account_id,omitempty"`
		} `json:"context"`
		LogKey string      `json:"log_key,omitempty"`
		Setup  InitRequest `json:"setup_request"`
	} `json:"setup_vm_request"`
	// Services run in the background until the cleanup.
	Services    []*VMStep `json:"services,omitempty"`
	Distributed bool      `json:"distributed,omitempty"`
}

// Init returns the enclosed init. The id of the stage becomes the transaction id.
func (r *VMInit) Init() InitRequest {
	in := r.Setup.Setup
	in.GroupID = cmp.Or(r.Setup.ID, in.GroupID)
	in.LogKey = cmp.Or(in.LogKey, r.Setup.LogKey)
	in.Network = in.Network.InPool(r.Setup.PoolID)
	return in
}

// InPool returns a copy of the network whose [PoolOption] is pool. An empty pool
// changes nothing.
func (n Network) InPool(pool string) Network {
	if pool == "" {
		return n
	}
	options := map[string]string{PoolOption: pool}
	for k, v := range n.Options {
		if k != PoolOption {
			options[k] = v
		}
	}
	n.Options = options
	return n
}

// VMExecute is the data of a DLITE_CI_VM_EXECUTE_TASK or ..._V2.
type VMExecute struct {
	Execute VMStep `json:"execute_step_request"`
}

// VMStep is the envelope of a step, or of a service of a [VMInit].
type VMStep struct {
	StageRuntimeID string         `json:"stage_runtime_id"`
	TaskID         string         `json:"task_id,omitempty"`
	Distributed    bool           `json:"distributed,omitempty"`
	IPAddress      string         `json:"ip_address,omitempty"`
	Start          ExecuteRequest `json:"start_step_request"`
}

// Step returns the enclosed step without its StepStatus: the delegate answers the
// task, so the agent must not report.
func (r *VMExecute) Step() ExecuteRequest {
	e := r.Execute.Start
	e.GroupID = cmp.Or(r.Execute.StageRuntimeID, e.GroupID)
	e.StepStatus = nil
	return e
}

// Service returns service i as a background step of the init's transaction. A
// service without an id gets "service-" and its index as id.
func (r *VMInit) Service(i int) ExecuteRequest {
	var e ExecuteRequest
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

// ServiceStatus reports how a service of a [VMInit] started: Running, or
// [ServiceError] with the reason.
type ServiceStatus struct {
	ID           string `json:"identifier"`
	Name         string `json:"name"`
	Image        string `json:"image"`
	LogKey       string `json:"log_key"`
	Status       Status `json:"status"`
	ErrorMessage string `json:"error_message"`
}

// ServiceError is the status of a service that failed to start.
const ServiceError Status = "ERROR"

// VMCleanup is the data of a DLITE_CI_VM_CLEANUP_TASK or ..._V2.
type VMCleanup struct {
	PoolID         string `json:"pool_id,omitempty"`
	StageRuntimeID string `json:"stage_runtime_id"`
	Distributed    bool   `json:"distributed,omitempty"`
}

// Cleanup returns the enclosed cleanup.
func (r *VMCleanup) Cleanup() CleanupRequest { return CleanupRequest{GroupID: r.StageRuntimeID} }

// VMCapacity is the data of a DLITE_CI_VM_CAPACITY_TASK. It reserves a machine of
// the pool for the stage with the id.
type VMCapacity struct {
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
// [CapacityReservation].
type CapacityResponse struct {
	Status       Status               `json:"command_execution_status"`
	ErrorMessage string               `json:"error_message,omitempty"`
	InfraType    string               `json:"infra_type,omitempty"`
	DelegateMeta DelegateMeta         `json:"delegate_meta_info"`
	Reservation  *CapacityReservation `json:"capacity_reservation,omitempty"`
}

// CapacityReservation is the reservation of a stage. It has only the stage id if
// no reservation is necessary: the driver has no pools, or the init has arrived.
type CapacityReservation struct {
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
