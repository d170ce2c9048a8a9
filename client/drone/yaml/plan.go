package yaml

import "github.com/delegate-io/dlite/task/stage"

// Input holds the values that a pipeline is compiled with.
type Input struct {
	// Variables are the DRONE_ and CI_ variables of the stage. Conditions are matched
	// against them: DRONE_BRANCH, DRONE_BUILD_EVENT, DRONE_BUILD_ACTION,
	// DRONE_COMMIT_REF, DRONE_REPO, DRONE_SYSTEM_HOST, DRONE_DEPLOY_TO, DRONE_CRON. The
	// clone uses DRONE_GIT_HTTP_URL (or DRONE_REMOTE_URL), DRONE_COMMIT_REF,
	// DRONE_COMMIT_SHA and DRONE_BRANCH.
	Variables map[string]string
	// Secrets are the values of from_secret and image_pull_secrets by name.
	Secrets map[string]string
	// SecretKey is the secret of the repository, which decrypts the secrets of the file
	// that Secrets does not have. If it is empty, they stay empty: a pull request from a
	// fork must not get them.
	SecretKey string
	// External returns the value of a secret of the file with a Path or a Key. It is called for
	// each that a step needs. The value is empty if there is no such secret. Nil means that none
	// has a value.
	External func(Secret) (string, error)
	// Hidden are variables of all steps whose values are secret. Variables of the pipeline win.
	Hidden map[string]string
	// Registries are credentials of registries. Those of image_pull_secrets win.
	Registries []stage.Auth
	// Trusted allows privileged steps, volumes of the host, and other settings that
	// reach out of the containers.
	Trusted bool
	// Netrc are the credentials of the repository.
	Netrc Netrc
	// Options are the settings of the runner.
	Options Options
}

// Netrc are credentials for the host Machine.
type Netrc struct {
	Machine, Login, Password string
}

// Options are settings of the runner for all pipelines.
type Options struct {
	// Privileged are the images of the plugins that run privileged in every repository.
	// Nil means plugins/docker, plugins/acr, plugins/ecr, plugins/gcr and
	// plugins/heroku.
	Privileged []string
	// Volumes are mounted into all containers: "/host:/container" or
	// "/host:/container:ro".
	Volumes []string
	// Networks are networks of the engine that all containers join.
	Networks []string
	// Environment has variables for all steps. Variables of the stage win.
	Environment map[string]string
	// DockerConfig is the content of a configuration file of Docker with credentials of
	// registries. Those of image_pull_secrets win.
	DockerConfig string
	// Secrets are secrets for all builds, also of pull requests. Those of the server and of the
	// file win.
	Secrets map[string]string
	// NetrcCloneOnly withholds the credentials of the repository from the steps.
	NetrcCloneOnly bool
	// Memory, MemorySwap and ShmSize are limits of each container in bytes, where the
	// step has none.
	Memory, MemorySwap, ShmSize int64
	// CPUPeriod, CPUQuota, CPUShares and CPUSet are limits of each container.
	CPUPeriod, CPUQuota, CPUShares int64
	CPUSet                         []string
}

// Plan is a compiled pipeline. The caller sets the ids of the transaction and the logs in
// Init and in each Execute.
type Plan struct {
	Init stage.InitRequest
	// Steps are the clone, the services and the steps, in this order.
	Steps []Step
}

// Step is a step of a plan.
type Step struct {
	// Number counts from 1 in the order of the plan, without skipped steps, as the
	// server numbers them. It is 0 for a skipped step.
	Number int
	Name   string
	Image  string
	// DependsOn are the names of the steps that must have ended (or, if detached, have
	// started) before. None of them is skipped. The steps of a serial pipeline depend
	// on their predecessors.
	DependsOn []string
	// Clone is set for the step "clone". The init makes the clone (Init.Clone), so
	// Execute is empty: the step has the result and the log of the init.
	Clone bool
	// Execute is the payload of the step.
	Execute stage.ExecuteRequest
	// OnSuccess and OnFailure report whether the step runs while no step has failed,
	// and after one has failed.
	OnSuccess, OnFailure bool
	// IgnoreFailure is set if a failure of the step does not fail the stage.
	IgnoreFailure bool
	// FailFast is set if a failure of the step ends the stage at once.
	FailFast bool
	// Detached is set for services and for steps in the background.
	Detached bool
	// Skipped is set if the conditions of the step are not met.
	Skipped bool
}
