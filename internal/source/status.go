package source

import "time"

// The states of a commit's status.
const (
	StatePending = "pending"
	StateRunning = "running"
	StateSuccess = "success"
	StateFailure = "failure"
	StateAborted = "aborted"
)

// StatusRequest asks to report the status of a commit.
type StatusRequest struct {
	// Provider is github, gitlab, bitbucket, gitea or azure-repos, and Server the address of its pages.
	Provider string `json:"provider"`
	Server   string `json:"server"`
	// Repository is the path of the repository on the server, without .git.
	Repository  string `json:"repository"`
	Commit      string `json:"commit"`
	Context     string `json:"context"`
	State       string `json:"state"`
	Description string `json:"description,omitempty"`
	Link        string `json:"link,omitempty"`
	Auth        *Auth  `json:"auth,omitempty"`
	// Expires is when the request must not be sent any more: a newer one may follow.
	Expires time.Time `json:"expires"`
}

// StatusAnswer is the result of a StatusRequest.
type StatusAnswer struct {
	// Sent means that the provider has the status. Refused means that it will not take it, however often it is sent. Otherwise
	// it may be sent again, after RetryAfterMS if that is set.
	Sent         bool   `json:"sent,omitempty"`
	Refused      bool   `json:"refused,omitempty"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
	Message      string `json:"message,omitempty"`
}
