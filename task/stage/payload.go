package stage

import (
	"cmp"
	"encoding/json"
	"slices"
)

// Status is the result of an init, a step or a cleanup.
type Status string

// The values of command_execution_status.
const (
	Success Status = "SUCCESS"
	Failure Status = "FAILURE"
	Timeout Status = "TIMEOUT"
	Running Status = "RUNNING"
	Queued  Status = "QUEUED"
	Skipped Status = "SKIPPED"
)

// InitRequest is the data of an init task, which opens a transaction.
type InitRequest struct {
	// GroupID is the transaction id. Some managers send only the id of the network,
	// see [InitRequest.TransactionID].
	GroupID string            `json:"group_id,omitempty"`
	Network Network           `json:"network"`
	Volumes []*Volume         `json:"volumes,omitempty"`
	Envs    map[string]string `json:"envs,omitempty"`
	// Secrets are values that are masked in all output.
	Secrets []string `json:"secrets,omitempty"`
	// LogConfig and LogKey are the destination of the init's own log.
	LogConfig *LogConfig `json:"log_config,omitempty"`
	LogKey    string     `json:"log_key,omitempty"`
	// MountDockerSocket mounts the engine's socket into every container step.
	MountDockerSocket bool    `json:"mount_docker_socket,omitempty"`
	Files             []*File `json:"files,omitempty"`
	// Clone checks out a repository into the workspace. It is an extension: other
	// managers clone in a step.
	Clone *Clone `json:"clone,omitempty"`
	// Steps announces steps, so that a driver can prepare for them, see
	// [Step.Announcement]. It is an extension and optional.
	Steps []*Step `json:"steps,omitempty"`
}

// Clone selects a revision of a repository. The first of Commit, Tag, Branch and
// Ref that is set is used. Without any, it is the default branch.
type Clone struct {
	// URL is any URL that git accepts, or a path on the delegate.
	URL    string `json:"url"`
	Branch string `json:"branch,omitempty"`
	Tag    string `json:"tag,omitempty"`
	// Commit is a full object name. If Branch or Ref is set as well, git fetches
	// that and Commit must be part of it. The local branch Branch is then at Commit.
	Commit string `json:"commit,omitempty"`
	// Ref is any other ref, such as "refs/pull/7/head".
	Ref string `json:"ref,omitempty"`
	// Merge merges Commit, which must be part of Ref, into Branch, as a check of a pull
	// request needs it. It needs all three.
	Merge bool `json:"merge,omitempty"`
	// Depth is the number of commits to fetch. Zero means all.
	Depth      int  `json:"depth,omitempty"`
	Submodules bool `json:"submodules,omitempty"`
	LFS        bool `json:"lfs,omitempty"`
	// Sparse are the directories to check out, with the files at the top, or patterns of
	// "git sparse-checkout" if one of them has a character of *?[!\. Empty means everything.
	Sparse []string `json:"sparse,omitempty"`
	// SkipVerify accepts any certificate of the server: the credentials and the content
	// are not protected against an attacker in the network.
	SkipVerify bool `json:"skip_verify,omitempty"`
	// Dir is a directory below the workspace. Empty means the workspace.
	Dir string `json:"dir,omitempty"`
	// Auth are the credentials for the host of the URL. They are never written to a
	// disk or passed on a command line.
	Auth *Auth `json:"auth,omitempty"`
}

// TransactionID returns the id that the execute and cleanup tasks use: the id of
// the group, or else of the network. It is empty if the request has neither.
func (r *InitRequest) TransactionID() string { return cmp.Or(r.GroupID, r.Network.ID) }

// InitResponse answers an init task.
type InitResponse struct {
	IPAddress    string       `json:"ip_address,omitempty"`
	DelegateMeta DelegateMeta `json:"delegate_meta_info,omitzero"`
	InfraType    string       `json:"infra_type,omitempty"`
	Status       Status       `json:"command_execution_status"`
	ErrorMessage string       `json:"error_message,omitempty"`
	// Services are the statuses of the services of a [VMInit], in their order.
	Services []ServiceStatus `json:"service_statuses,omitempty"`
	// FailureKind classifies a failure, see [FailureImage]. It is an extension.
	FailureKind string `json:"failure_kind,omitempty"`
	// Clone is absent from an init that has cloned nothing. It is an extension.
	Clone *CloneTime `json:"clone,omitempty"`
}

// CloneTime is the part of an init that checked out the repository: it began After milliseconds
// after the init, and took Took milliseconds.
type CloneTime struct {
	After int64 `json:"after_ms"`
	Took  int64 `json:"took_ms"`
}

// The kinds of failures that a driver knows, in the answers to inits and executes. An
// answer without a kind leaves the classification to the manager.
const (
	// FailureImage: the image of a container cannot be pulled.
	FailureImage = "image"
	// FailureConnectivity: the engine, the cluster, or the machine of the stage cannot be
	// reached.
	FailureConnectivity = "connectivity"
	// FailureDelegateLost: the delegate was restarted and does not know how the step
	// ended, or the cloud takes the machine of the stage away.
	FailureDelegateLost = "delegate_lost"
	// FailureInfrastructure: the infrastructure has no room for the stage, or ended it.
	FailureInfrastructure = "infrastructure"
	// FailureRefused: the infrastructure does not allow the stage or step.
	FailureRefused = "refused"
)

// DelegateMeta names the delegate that owns a transaction.
type DelegateMeta struct {
	ID       string `json:"id,omitempty"`
	HostName string `json:"host_name,omitempty"`
}

// ExecuteRequest is the data of an execute task: one step of a transaction.
type ExecuteRequest struct {
	Step
	// GroupID is the transaction id, if the manager sends it.
	GroupID string `json:"group_id,omitempty"`
	// VolumesActual describes volumes that the init did not contain.
	VolumesActual []*Volume `json:"volumes_actual,omitempty"`
}

// TransactionIDs returns the possible ids of the transaction, the most specific
// first.
func (r *ExecuteRequest) TransactionIDs() []string {
	return nonEmpty(r.GroupID, r.StageRuntimeID, r.Network)
}

// ExecuteResponse answers an execute task.
type ExecuteResponse struct {
	Status       Status            `json:"command_execution_status"`
	ErrorMessage string            `json:"error_message,omitempty"`
	OutputVars   map[string]string `json:"output_vars,omitempty"`
	Outputs      []Output          `json:"outputs,omitempty"`
	// Artifact is the content of the step's artifact file. It travels as base64.
	Artifact []byte `json:"artifact,omitempty"`
	// ExitCode, OOMKilled and FailureKind are extensions. FailureKind classifies a
	// failure that has no exit code, see [FailureImage].
	ExitCode    int    `json:"exit_code,omitempty"`
	OOMKilled   bool   `json:"oom_killed,omitempty"`
	FailureKind string `json:"failure_kind,omitempty"`
	// Tests summarises the step's test reports. It is an extension.
	Tests *TestSummary `json:"tests,omitempty"`
}

// TestSummary is the sum of the test reports of a step.
type TestSummary struct {
	Total   int `json:"total"`
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Errors  int `json:"errors"`
	Skipped int `json:"skipped"`
	// DurationMillis is the run time of the tests, in milliseconds.
	DurationMillis int64 `json:"duration_ms"`
	// Failures are the first tests that failed or had an error.
	Failures []TestFailure `json:"failures,omitempty"`
	// Problems names the reports that could not be read, with the reason.
	Problems []string `json:"problems,omitempty"`
}

// TestFailure is a test that failed or had an error.
type TestFailure struct {
	Suite   string `json:"suite,omitempty"`
	Class   string `json:"class,omitempty"`
	Name    string `json:"name"`
	Message string `json:"message,omitempty"`
}

// CleanupRequest is the data of a cleanup task, which ends a transaction.
type CleanupRequest struct {
	GroupID string    `json:"group_id,omitempty"`
	Network string    `json:"network,omitempty"`
	Volumes []*Volume `json:"volumes,omitempty"`
	// Containers selects containers by their labels. The delegate ignores it: it
	// removes only resources of the transaction's own record (rule T3).
	Containers struct {
		Labels map[string]string `json:"labels,omitempty"`
	} `json:"containers,omitzero"`
	LogConfig *LogConfig `json:"log_config,omitempty"`
	LogKey    string     `json:"log_key,omitempty"`
}

// TransactionIDs returns the possible ids of the transaction, the most specific
// first.
func (r *CleanupRequest) TransactionIDs() []string { return nonEmpty(r.GroupID, r.Network) }

// CleanupResponse answers a cleanup task. With a Status of success, ErrorMessage has remarks of the driver
// about processes that may have survived.
type CleanupResponse struct {
	Status       Status `json:"command_execution_status"`
	ErrorMessage string `json:"error_message,omitempty"`
}

// Network is the network of a transaction.
type Network struct {
	ID      string            `json:"id,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Options map[string]string `json:"options,omitempty"`
}

// UnmarshalJSON decodes an object, or a string with only the id, as steps have it.
func (n *Network) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*n = Network{}
		return json.Unmarshal(b, &n.ID)
	}
	type plain Network
	return json.Unmarshal(b, (*plain)(n))
}

// Volume is a volume of a transaction: a temporary volume, a directory of the host,
// or a claim of the cluster. Exactly one field must be set.
type Volume struct {
	Temp *TempVolume `json:"temp,omitempty"`
	Host *HostVolume `json:"host,omitempty"`
	// Claim is an extension for Kubernetes.
	Claim *ClaimVolume `json:"claim,omitempty"`
}

// TempVolume exists as long as its transaction. Medium "memory" keeps it in memory.
// SizeLimit is in bytes, and zero means no limit. The driver of the delegate's own
// machine enforces the limit only in memory.
type TempVolume struct {
	ID        string            `json:"id,omitempty"`
	Name      string            `json:"name,omitempty"`
	Medium    string            `json:"medium,omitempty"`
	SizeLimit int64             `json:"size_limit,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// HostVolume is a directory of the host. Create makes a missing directory. Remove
// deletes the directory in the cleanup.
type HostVolume struct {
	ID       string            `json:"id,omitempty"`
	Name     string            `json:"name,omitempty"`
	Path     string            `json:"path,omitempty"`
	Create   bool              `json:"create,omitempty"`
	Remove   bool              `json:"remove,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	ReadOnly bool              `json:"read_only,omitempty"`
}

// ClaimVolume is an existing PersistentVolumeClaim in the namespace of the pod. The
// cleanup does not delete it.
type ClaimVolume struct {
	ID       string `json:"id,omitempty"`
	Name     string `json:"name,omitempty"`
	Claim    string `json:"claim,omitempty"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// LogConfig is the connection to the log service (docs/protocol.md 4).
type LogConfig struct {
	AccountID         string `json:"account_id,omitempty"`
	URL               string `json:"url,omitempty"`
	Token             string `json:"token,omitempty"`
	IndirectUpload    bool   `json:"indirect_upload,omitempty"`
	TrimNewLineSuffix bool   `json:"trim_new_line_suffix,omitempty"`
	SkipOpeningStream bool   `json:"skip_opening_stream,omitempty"`
	SkipClosingStream bool   `json:"skip_closing_stream,omitempty"`
}

// File is a file or directory that is created before the steps run. Mode has the
// permission bits, and Data the content as text.
type File struct {
	Path  string `json:"path"`
	Mode  uint32 `json:"mode,omitempty"`
	Data  string `json:"data,omitempty"`
	IsDir bool   `json:"is_dir,omitempty"`
}

func nonEmpty(ids ...string) []string {
	return slices.DeleteFunc(ids, func(id string) bool { return id == "" })
}
