package stage

import "encoding/json"

// Status is how an init, a step or a cleanup ended.
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

// InitRequest is the data of an init task. It opens a transaction.
type InitRequest struct {
	// GroupID is the transaction's id. Managers that do not send it mean the
	// network's id; see [InitRequest.TransactionID].
	GroupID string            `json:"group_id,omitempty"`
	Network Network           `json:"network"`
	Volumes []*Volume         `json:"volumes,omitempty"`
	Envs    map[string]string `json:"envs,omitempty"`
	// Secrets are values that no output may show.
	Secrets []string `json:"secrets,omitempty"`
	// LogConfig and LogKey tell where the init's own log goes.
	LogConfig *LogConfig `json:"log_config,omitempty"`
	LogKey    string     `json:"log_key,omitempty"`
	// MountDockerSocket gives every container step the engine's socket.
	MountDockerSocket bool    `json:"mount_docker_socket,omitempty"`
	Files             []*File `json:"files,omitempty"`
	// Clone checks a repository out into the workspace. Ours: plain managers
	// clone in a step.
	Clone *Clone `json:"clone,omitempty"`
	// Steps announces steps, so that a driver can prepare for them: see
	// [Step.Announcement]. Ours; no step needs to be announced.
	Steps []*Step `json:"steps,omitempty"`
}

// Clone says what to check out. Of Commit, Tag, Branch and Ref the first that is
// set counts; none is the repository's default branch.
type Clone struct {
	// URL is anything that git takes: https, ssh, git, or a path on the delegate.
	URL    string `json:"url"`
	Branch string `json:"branch,omitempty"`
	Tag    string `json:"tag,omitempty"`
	// Commit is a full object name. With Branch or Ref set as well, that is
	// fetched and Commit must be part of it.
	Commit string `json:"commit,omitempty"`
	// Ref is any other ref, such as "refs/pull/7/head".
	Ref string `json:"ref,omitempty"`
	// Depth is how many commits to fetch; 0 is all of them.
	Depth      int  `json:"depth,omitempty"`
	Submodules bool `json:"submodules,omitempty"`
	LFS        bool `json:"lfs,omitempty"`
	// Dir is the folder below the workspace; empty is the workspace itself.
	Dir string `json:"dir,omitempty"`
	// Auth are credentials for the URL's host. They reach git without touching a
	// disk or a command line.
	Auth *Auth `json:"auth,omitempty"`
}

// TransactionID is the id under which execute and cleanup will come back: the
// group's, or else the network's. It is empty when the request has neither.
func (r *InitRequest) TransactionID() string { return first(r.GroupID, r.Network.ID) }

// InitResponse answers an init task.
type InitResponse struct {
	IPAddress    string       `json:"ip_address,omitempty"`
	DelegateMeta DelegateMeta `json:"delegate_meta_info,omitzero"`
	InfraType    string       `json:"infra_type,omitempty"`
	Status       Status       `json:"command_execution_status"`
	ErrorMessage string       `json:"error_message,omitempty"`
	// Services are those of a [VMInit], in their order.
	Services []ServiceStatus `json:"service_statuses,omitempty"`
}

// DelegateMeta names the delegate that owns a transaction.
type DelegateMeta struct {
	ID       string `json:"id,omitempty"`
	HostName string `json:"host_name,omitempty"`
}

// ExecuteRequest is the data of an execute task: one step of a transaction.
type ExecuteRequest struct {
	Step
	// GroupID is the transaction's id where the manager sends it.
	GroupID string `json:"group_id,omitempty"`
	// VolumesActual describes volumes that the init did not name.
	VolumesActual []*Volume `json:"volumes_actual,omitempty"`
}

// TransactionIDs are the ids under which the transaction may be known, the
// most specific first.
func (r *ExecuteRequest) TransactionIDs() []string {
	return nonEmpty(r.GroupID, r.StageRuntimeID, r.Network)
}

// ExecuteResponse answers an execute task.
type ExecuteResponse struct {
	Status       Status            `json:"command_execution_status"`
	ErrorMessage string            `json:"error_message,omitempty"`
	OutputVars   map[string]string `json:"output_vars,omitempty"`
	Outputs      []Output          `json:"outputs,omitempty"`
	// Artifact is the content of the step's artifact file, base64 on the wire.
	Artifact []byte `json:"artifact,omitempty"`
	// ExitCode and OOMKilled are ours: plain managers ignore them.
	ExitCode  int  `json:"exit_code,omitempty"`
	OOMKilled bool `json:"oom_killed,omitempty"`
	// Tests summarises the step's test reports. Ours.
	Tests *TestSummary `json:"tests,omitempty"`
}

// TestSummary is what the reports of a step say.
type TestSummary struct {
	Total   int `json:"total"`
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Errors  int `json:"errors"`
	Skipped int `json:"skipped"`
	// DurationMillis is the tests' own time, in milliseconds.
	DurationMillis int64 `json:"duration_ms"`
	// Failures are the first of the tests that failed or had an error.
	Failures []TestFailure `json:"failures,omitempty"`
	// Problems are reports that could not be read, with the reason.
	Problems []string `json:"problems,omitempty"`
}

// TestFailure is a test that failed or had an error.
type TestFailure struct {
	Suite   string `json:"suite,omitempty"`
	Class   string `json:"class,omitempty"`
	Name    string `json:"name"`
	Message string `json:"message,omitempty"`
}

// CleanupRequest is the data of a cleanup task. It ends a transaction.
type CleanupRequest struct {
	GroupID    string            `json:"group_id,omitempty"`
	Network    string            `json:"network,omitempty"`
	Volumes    []*Volume         `json:"volumes,omitempty"`
	Containers CleanupContainers `json:"containers,omitzero"`
	LogConfig  *LogConfig        `json:"log_config,omitempty"`
	LogKey     string            `json:"log_key,omitempty"`
}

// CleanupContainers selects containers by their labels. Nothing is removed for
// it that the transaction's own record does not name (SPEC T3).
type CleanupContainers struct {
	Labels map[string]string `json:"labels,omitempty"`
}

// TransactionIDs are the ids under which the transaction may be known, the
// most specific first.
func (r *CleanupRequest) TransactionIDs() []string { return nonEmpty(r.GroupID, r.Network) }

// CleanupResponse answers a cleanup task.
type CleanupResponse struct {
	Status       Status `json:"command_execution_status"`
	ErrorMessage string `json:"error_message,omitempty"`
}

// Network is a transaction's network.
type Network struct {
	ID      string            `json:"id,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Options map[string]string `json:"options,omitempty"`
}

// UnmarshalJSON takes the network's object or, as steps name it, its id alone.
func (n *Network) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*n = Network{}
		return json.Unmarshal(b, &n.ID)
	}
	type plain Network
	return json.Unmarshal(b, (*plain)(n))
}

// Volume is one volume of a transaction: a temporary one, a folder of the host, or
// a claim of the cluster. Exactly one of them is set.
type Volume struct {
	Temp *TempVolume `json:"temp,omitempty"`
	Host *HostVolume `json:"host,omitempty"`
	// Claim is ours, and for Kubernetes alone.
	Claim *ClaimVolume `json:"claim,omitempty"`
}

// TempVolume lives as long as its transaction. Medium "memory" keeps it in
// memory; SizeLimit is in bytes, 0 is no limit. The local driver enforces it in
// memory alone, see package driver/local.
type TempVolume struct {
	ID        string            `json:"id,omitempty"`
	Name      string            `json:"name,omitempty"`
	Medium    string            `json:"medium,omitempty"`
	SizeLimit int64             `json:"size_limit,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// HostVolume is a folder of the host. Create makes it when it is missing;
// Remove deletes it in cleanup.
type HostVolume struct {
	ID       string            `json:"id,omitempty"`
	Name     string            `json:"name,omitempty"`
	Path     string            `json:"path,omitempty"`
	Create   bool              `json:"create,omitempty"`
	Remove   bool              `json:"remove,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	ReadOnly bool              `json:"read_only,omitempty"`
}

// ClaimVolume is a PersistentVolumeClaim that exists in the namespace of the pod. It
// outlives the transaction.
type ClaimVolume struct {
	ID       string `json:"id,omitempty"`
	Name     string `json:"name,omitempty"`
	Claim    string `json:"claim,omitempty"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// LogConfig says how to reach the log service (PROTOCOL 4).
type LogConfig struct {
	AccountID         string `json:"account_id,omitempty"`
	URL               string `json:"url,omitempty"`
	Token             string `json:"token,omitempty"`
	IndirectUpload    bool   `json:"indirect_upload,omitempty"`
	TrimNewLineSuffix bool   `json:"trim_new_line_suffix,omitempty"`
	SkipOpeningStream bool   `json:"skip_opening_stream,omitempty"`
	SkipClosingStream bool   `json:"skip_closing_stream,omitempty"`
}

// File is a file or folder to make before the steps run. Mode is the
// permission bits; Data is the content as text.
type File struct {
	Path  string `json:"path"`
	Mode  uint32 `json:"mode,omitempty"`
	Data  string `json:"data,omitempty"`
	IsDir bool   `json:"is_dir,omitempty"`
}

func first(ids ...string) string {
	for _, id := range ids {
		if id != "" {
			return id
		}
	}
	return ""
}

func nonEmpty(ids ...string) []string {
	var out []string
	for _, id := range ids {
		if id != "" {
			out = append(out, id)
		}
	}
	return out
}
