package engine

// Status is the status of a node. Expressions see the same words.
type Status string

// The statuses.
const (
	// NotStarted is the status of a node of an earlier attempt that will run again.
	NotStarted Status = "NOT_STARTED"
	Queued     Status = "QUEUED"
	Running    Status = "RUNNING"
	// InputWaiting, ApprovalWaiting and InterventionWaiting wait for an answer of a person.
	InputWaiting        Status = "INPUT_WAITING"
	ApprovalWaiting     Status = "APPROVAL_WAITING"
	InterventionWaiting Status = "INTERVENTION_WAITING"
	// Cancelling waits until the delegate has confirmed an abort.
	Cancelling Status = "CANCELLING"

	Succeeded Status = "SUCCEEDED"
	Failed    Status = "FAILED"
	Aborted   Status = "ABORTED"
	Expired   Status = "EXPIRED"
	// Errored is the status of a node of a run that the service could not carry out. The engine
	// never sets it, and meets it when such a run is retried.
	Errored          Status = "ERRORED"
	Skipped          Status = "SKIPPED"
	IgnoreFailed     Status = "IGNORE_FAILED"
	ApprovalRejected Status = "APPROVAL_REJECTED"
)

// Ended reports whether the status is final.
func (s Status) Ended() bool {
	switch s {
	case Succeeded, Failed, Aborted, Expired, Errored, Skipped, IgnoreFailed, ApprovalRejected:
		return true
	}
	return false
}

// Positive reports whether the status counts as a success.
func (s Status) Positive() bool { return s == Succeeded || s == Skipped || s == IgnoreFailed }

// Broken reports whether the status makes OnStageFailure and OnPipelineFailure true. An abort
// and a rejected approval do not.
func (s Status) Broken() bool { return s == Failed || s == Errored || s == Expired }

// Waiting reports whether the status waits for an answer of a person.
func (s Status) Waiting() bool {
	return s == InputWaiting || s == ApprovalWaiting || s == InterventionWaiting
}

// worst lists the statuses that decide that of a parent, the strongest first.
var worst = [...]Status{Aborted, Errored, Failed, ApprovalRejected, Expired}

// waits lists the statuses of a waiting child that a running parent shows, the strongest first.
var waits = [...]Status{InterventionWaiting, ApprovalWaiting, InputWaiting}

// tally counts nodes by their status.
type tally map[Status]int

func (t *tally) add(s Status, n int) {
	if n == 0 {
		return
	}
	if *t == nil {
		*t = tally{}
	}
	if (*t)[s] += n; (*t)[s] == 0 {
		delete(*t, s)
	}
}

// aggregate returns the status of a parent whose children ended as counted.
func (t tally) aggregate() Status {
	for _, s := range worst {
		if t[s] > 0 {
			return s
		}
	}
	if t[IgnoreFailed] > 0 {
		return IgnoreFailed
	}
	return Succeeded
}
