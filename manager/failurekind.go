package manager

import (
	"net/http"

	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
)

// isReported reports whether an answer may name the kind itself.
func isReported(k api.FailureKind) bool {
	switch k {
	case api.FailureExitCode, api.FailureTimeout, api.FailureImage, api.FailureConnectivity, api.FailureOutOfMemory, api.FailureRefused,
		api.FailureDelegateLost, api.FailureInfrastructure:
		return true
	default:
		return false
	}
}

// failureKind returns the kind of the failure that an event reports for a part. It is
// empty for a success.
func (f *answerData) failureKind(kind taskkind.Kind, r *queue.Result) api.FailureKind {
	switch r.Outcome {
	case queue.Success:
		return ""
	case queue.Abandoned:
		return api.FailureDelegateLost
	case queue.Aborted:
		return api.FailureAborted
	case queue.TimedOut:
		return api.FailureTimeout
	}
	switch {
	case isReported(api.FailureKind(f.kind)):
		return api.FailureKind(f.kind)
	case f.oomKilled:
		return api.FailureOutOfMemory
	case kind == taskkind.Execute && f.bodyCode == http.StatusConflict: // the transaction is not open there
		return api.FailureDelegateLost
	case r.Code == task.RetryOnOtherDelegate, f.bodyCode >= 400 && f.bodyCode < 500:
		return api.FailureRefused
	case f.failedByCode && kind == taskkind.Execute: // a failed clone may quote the exit code of git
		return api.FailureExitCode
	case kind == taskkind.Init:
		return api.FailureInfrastructure
	}
	return api.FailureUnknown
}
