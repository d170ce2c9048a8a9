package stage

import (
	"cmp"
	"strconv"
)

// PoolOption is the network option that names the pool of machines for a
// transaction.
const PoolOption = "pool_id"

// VMInit is the data of a DLITE_CI_VM_INITIALIZE_TASK (PROTOCOL 3): an init in
// another envelope.
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
	// Services run in the background from the init to the cleanup.
	Services    []*VMStep `json:"services,omitempty"`
	Distributed bool      `json:"distributed,omitempty"`
}

// Init is the init in it. The stage's id becomes the transaction's.
func (r *VMInit) Init() InitRequest {
	in := r.Setup.Setup
	in.GroupID = cmp.Or(r.Setup.ID, in.GroupID)
	in.LogKey = cmp.Or(in.LogKey, r.Setup.LogKey)
	in.Network = in.Network.InPool(r.Setup.PoolID)
	return in
}

// InPool is the network with the pool among its options, see [PoolOption]. An empty
// one leaves it as it is.
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

// VMExecute is the data of a DLITE_CI_VM_EXECUTE_TASK and ..._V2.
type VMExecute struct {
	Execute VMStep `json:"execute_step_request"`
}

// VMStep is a step in its envelope, or a service of a [VMInit].
type VMStep struct {
	StageRuntimeID string         `json:"stage_runtime_id"`
	TaskID         string         `json:"task_id,omitempty"`
	Distributed    bool           `json:"distributed,omitempty"`
	IPAddress      string         `json:"ip_address,omitempty"`
	Start          ExecuteRequest `json:"start_step_request"`
}

// Step is the step in it. Whoever runs it answers for it: that an agent shall
// report by itself is not kept.
func (r *VMExecute) Step() ExecuteRequest {
	e := r.Execute.Start
	e.GroupID = cmp.Or(r.Execute.StageRuntimeID, e.GroupID)
	e.StepStatus = nil
	return e
}

// Service is the i-th service, as a step in the background of the init's
// transaction. One without an id is called by its number.
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

// ServiceStatus is how a service of a [VMInit] has begun: Running, or
// [ServiceError] with the reason.
type ServiceStatus struct {
	ID           string `json:"identifier"`
	Name         string `json:"name"`
	Image        string `json:"image"`
	LogKey       string `json:"log_key"`
	Status       Status `json:"status"`
	ErrorMessage string `json:"error_message"`
}

// ServiceError is the status of a service that could not be started.
const ServiceError Status = "ERROR"

// VMCleanup is the data of a DLITE_CI_VM_CLEANUP_TASK and ..._V2.
type VMCleanup struct {
	PoolID         string `json:"pool_id,omitempty"`
	StageRuntimeID string `json:"stage_runtime_id"`
	Distributed    bool   `json:"distributed,omitempty"`
}

// Cleanup is the cleanup in it.
func (r *VMCleanup) Cleanup() CleanupRequest { return CleanupRequest{GroupID: r.StageRuntimeID} }

// VMCapacity is the data of a DLITE_CI_VM_CAPACITY_TASK: the stage with that id will
// want a machine of the pool.
type VMCapacity struct {
	Reservation struct {
		ID     string `json:"id"`
		PoolID string `json:"pool_id,omitempty"`
		// Timeout is how long the machine waits for the stage's init, in milliseconds.
		Timeout int64 `json:"timeout,omitempty"`
	} `json:"capacity_reservation_request"`
}

// CapacityResponse answers a DLITE_CI_VM_CAPACITY_TASK. The status is Success also
// when all machines are in use: the stage's init waits, see [CapacityReservation].
type CapacityResponse struct {
	Status       Status               `json:"command_execution_status"`
	ErrorMessage string               `json:"error_message,omitempty"`
	InfraType    string               `json:"infra_type,omitempty"`
	DelegateMeta DelegateMeta         `json:"delegate_meta_info"`
	Reservation  *CapacityReservation `json:"capacity_reservation,omitempty"`
}

// CapacityReservation is what a stage has reserved. All but its id is empty where
// nothing has to be: the driver has no pools, or the stage's init has come already.
type CapacityReservation struct {
	StageID  string `json:"stage_id"`
	PoolName string `json:"pool_name,omitempty"`
	// InstanceID is the machine. It is empty while all are in use: then the stage
	// is the one of this place, from 1, among those that wait. Place is ours.
	InstanceID string `json:"instance_id,omitempty"`
	Place      int    `json:"place,omitempty"`
	// ExpiresAt is when it ends if no init comes, in Unix milliseconds. Ours.
	ExpiresAt int64 `json:"expires_at,omitempty"`
}
