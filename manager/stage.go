package manager

// The values of [api.StepRequest.RunOn].
const (
	runOnSuccess = "success"
	runOnFailure = "failure"
	runOnAlways  = "always"
)
