package manager

import (
	"net/http"

	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
)

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

// isReported reports whether an answer may name the kind itself.
func (k FailureKind) isReported() bool {
	switch k {
	case FailureExitCode, FailureTimeout, FailureImage, FailureConnectivity, FailureOutOfMemory, FailureRefused,
		FailureDelegateLost, FailureInfrastructure:
		return true
	default:
		return false
	}
}

// failureKind returns the kind of the failure that an event reports for a part. It is
// empty for a success.
func (f *answerData) failureKind(kind taskkind.Kind, r *queue.Result) FailureKind {
	switch r.Outcome {
	case queue.Success:
		return ""
	case queue.Abandoned:
		return FailureDelegateLost
	case queue.Aborted:
		return FailureAborted
	case queue.TimedOut:
		return FailureTimeout
	}
	switch {
	case FailureKind(f.kind).isReported():
		return FailureKind(f.kind)
	case f.oomKilled:
		return FailureOutOfMemory
	case kind == taskkind.Execute && f.bodyCode == http.StatusConflict: // the transaction is not open there
		return FailureDelegateLost
	case r.Code == task.RetryOnOtherDelegate, f.bodyCode >= 400 && f.bodyCode < 500:
		return FailureRefused
	case f.failedByCode && kind == taskkind.Execute: // a failed clone may quote the exit code of git
		return FailureExitCode
	case kind == taskkind.Init:
		return FailureInfrastructure
	}
	return FailureUnknown
}
