package api

// Status is the status of a stage, a step or a single task.
type Status string

// The statuses. Only steps can be [Skipped].
const (
	Queued  Status = "QUEUED"
	Running Status = "RUNNING"
	Success Status = "SUCCESS"
	Failure Status = "FAILURE"
	Timeout Status = "TIMEOUT"
	Aborted Status = "ABORTED"
	Skipped Status = "SKIPPED"
)

// Ended reports whether the status is final.
func (s Status) Ended() bool { return s != "" && s != Queued && s != Running }

// FailureKind classifies the failure of a stage or of one of its parts.
type FailureKind string

// The kinds of failures. A failed stage has the kind of the first part that failed,
// unless it was stopped.
const (
	// FailureExitCode: the step's command ended with an exit code other than 0.
	FailureExitCode FailureKind = "exit_code"
	// FailureTimeout: the time-out of the part or of the stage has passed, or no delegate
	// took it in time.
	FailureTimeout FailureKind = "timeout"
	// FailureImage: the image of a container cannot be pulled.
	FailureImage FailureKind = "image"
	// FailureConnectivity: the delegate cannot reach a server, or its machine, that the
	// part needs.
	FailureConnectivity FailureKind = "connectivity"
	// FailureOutOfMemory: the step exceeded its memory limit.
	FailureOutOfMemory FailureKind = "out_of_memory"
	// FailureDelegateLost: the delegate is lost, has unregistered, or was restarted and
	// does not have the stage any more.
	FailureDelegateLost FailureKind = "delegate_lost"
	// FailureAborted: the stage or the step was aborted.
	FailureAborted FailureKind = "aborted"
	// FailureRefused: the delegate refused the part, because its payload is not valid or
	// the delegate does not support it.
	FailureRefused FailureKind = "refused"
	// FailureInfrastructure: the init failed for a reason that has no other kind.
	FailureInfrastructure FailureKind = "infrastructure"
	// FailureLeaseEnded: the lease of a held stage ended, see [Hold].
	FailureLeaseEnded FailureKind = "lease_ended"
	// FailureUnknown: the delegate gave no reason that has another kind.
	FailureUnknown FailureKind = "unknown"
)
