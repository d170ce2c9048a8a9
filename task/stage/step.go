package stage

// Step is a step of a stage. It has the members of StartStepRequest of the agent
// API (docs/protocol.md 5). A step with an Image runs in a container, otherwise on
// the host.
type Step struct {
	ID             string `json:"id"`
	Name           string `json:"name,omitempty"`
	StageRuntimeID string `json:"stage_runtime_id,omitempty"`
	// Kind is "Run", "RunTest" or "RunTestsV2". Empty means "Run".
	Kind string `json:"kind,omitempty"`
	Run  Run    `json:"run"`
	// Detach makes the step a background step: the answer does not wait for its
	// end.
	Detach bool `json:"detach,omitempty"`
	// Ready makes the answer of a background step wait until the step is ready.
	Ready *Ready `json:"ready,omitempty"`
	// Plugin is a program that is fetched and runs on the host instead of Run.
	Plugin      *Plugin           `json:"plugin,omitempty"`
	Environment map[string]string `json:"environment"`
	WorkingDir  string            `json:"working_dir,omitempty"`
	// Timeout is in seconds. Zero means no time-out.
	Timeout int `json:"timeout,omitempty"`
	// User is "uid[:gid]" or a name. Empty means the user of the image, or on the
	// host the user of the delegate.
	User string `json:"user,omitempty"`
	// SoftStop ends the step with SIGTERM, and after a grace period with SIGKILL.
	SoftStop bool `json:"soft_stop,omitempty"`

	LogKey    string     `json:"log_key,omitempty"`
	LogDrone  bool       `json:"log_drone,omitempty"`
	LogConfig *LogConfig `json:"log_config,omitempty"`
	// Secrets are values that are masked in all output.
	Secrets []string `json:"secrets,omitempty"`

	// OutputVars and Outputs name the shell variables that are read after the
	// script.
	OutputVars    []string       `json:"output_vars,omitempty"`
	Outputs       []Output       `json:"outputs,omitempty"`
	OutputVarFile string         `json:"output_var_file,omitempty"`
	SecretVarFile string         `json:"secret_var_file,omitempty"`
	ScratchDir    string         `json:"scratch_dir,omitempty"`
	TestReport    *TestReport    `json:"test_report,omitempty"`
	Files         []*File        `json:"files,omitempty"`
	Volumes       []*VolumeMount `json:"volumes,omitempty"`

	// The fields below apply to containers only.

	Image string `json:"image,omitempty"`
	// Pull is "default", "Always", "IfNotPresent" or "Never". Empty and "default"
	// mean Always for the tag latest, otherwise IfNotPresent.
	Pull           string            `json:"pull,omitempty"`
	Auth           *Auth             `json:"auth,omitempty"`
	Network        string            `json:"network,omitempty"`
	Networks       []string          `json:"networks,omitempty"`
	NetworkAliases []string          `json:"network_aliases,omitempty"`
	PortBindings   map[string]string `json:"port_bindings,omitempty"` // host port to container port
	DNS            []string          `json:"dns,omitempty"`
	DNSSearch      []string          `json:"dns_search,omitempty"`
	ExtraHosts     []string          `json:"extra_hosts,omitempty"`
	Devices        []*DeviceMount    `json:"devices,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	Privileged     bool              `json:"privileged,omitempty"`
	CPUPeriod      int64             `json:"cpu_period,omitempty"`
	CPUQuota       int64             `json:"cpu_quota,omitempty"`
	CPUShares      int64             `json:"cpu_shares,omitempty"`
	CPUSet         []string          `json:"cpu_set,omitempty"`
	MemLimit       int64             `json:"mem_limit,omitempty"`     // bytes
	MemSwapLimit   int64             `json:"memswap_limit,omitempty"` // bytes
	ShmSize        int64             `json:"shm_size,omitempty"`      // bytes

	// Ulimits are the limits of the container's processes. They are an extension.
	Ulimits []*Ulimit `json:"ulimits,omitempty"`

	MountDockerSocket bool           `json:"mount_docker_socket,omitempty"`
	ProcessConfig     *ProcessConfig `json:"process_config,omitempty"`
	StepStatus        *StepStatus    `json:"step_status,omitempty"`
}

// Run is the command line of a step: Entrypoint followed by Command.
type Run struct {
	Entrypoint []string `json:"entrypoint,omitempty"`
	Command    []string `json:"commands,omitempty"`
}

// Ready is the condition under which a background step is ready. Exactly one of
// Port, HTTP and Command must be set. It is an extension.
type Ready struct {
	// Port is a TCP port of the step that must accept a connection.
	Port int `json:"port,omitempty"`
	// HTTP is a URL that must answer with a status below 400. The host "localhost"
	// means the step.
	HTTP string `json:"http,omitempty"`
	// Command runs where the step runs, and must exit with 0.
	Command []string `json:"command,omitempty"`
	// Timeout is in seconds. Zero means 60. If the step is not ready by then, it is
	// stopped and fails.
	Timeout int `json:"timeout,omitempty"`
	// IntervalMillis is the time between attempts, in milliseconds. Zero means 200.
	IntervalMillis int `json:"interval_ms,omitempty"`
}

// Plugin is a program that is fetched by URL, verified and cached (rule D4). Its
// settings become variables with the prefix PLUGIN_. It is an extension.
type Plugin struct {
	// Builtin names a program of the delegate or the agent, such as "storage". It
	// replaces Executables, and nothing is fetched.
	Builtin     string            `json:"builtin,omitempty"`
	Executables []Executable      `json:"executables,omitempty"`
	Settings    map[string]string `json:"settings,omitempty"`
	Args        []string          `json:"args,omitempty"`
}

// Executable is the program of a plugin for one platform. OS and Arch are GOOS and
// GOARCH values.
type Executable struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	URL  string `json:"url"`
	// SHA256 is the hexadecimal checksum of the file at URL. Required.
	SHA256 string `json:"sha256"`
	// Compressed reports that the file is compressed with zstd.
	Compressed bool `json:"compressed,omitempty"`
}

// Output is an output variable of a step. In a request, Value is the name of the
// shell variable; in a response it is the value.
type Output struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// Type is [OutputString] or [OutputSecret]. Empty means OutputString.
	Type string `json:"type,omitempty"`
}

// The types of an [Output].
const (
	OutputString = "STRING"
	OutputSecret = "SECRET"
)

// WorkspaceVolume is the name of the workspace in a [VolumeMount]. It mounts the workspace at
// a second path of a container. A volume of the transaction with this name replaces it.
const WorkspaceVolume = "dlite-workspace"

// VolumeMount mounts a volume of the transaction at Path. Name is its name or id.
type VolumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// DeviceMount gives a container a device of the host. Name is the name of a volume.
type DeviceMount struct {
	Name       string `json:"name"`
	DevicePath string `json:"path,omitempty"`
}

// Auth are registry credentials.
type Auth struct {
	Address  string `json:"address,omitempty"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// TestReport names the test reports that a step writes.
type TestReport struct {
	Kind  string `json:"kind,omitempty"`
	Junit struct {
		Paths []string `json:"paths,omitempty"`
	} `json:"junit,omitzero"`
}

// ProcessConfig configures how an agent ends the processes of a step. The agent of
// this module ignores it: it always kills the processes after the time-out.
type ProcessConfig struct {
	KillProcessOnContextCancel bool `json:"kill_process_on_context_cancel,omitempty"`
}

// StepStatus makes an agent report the end of the step to the manager.
type StepStatus struct {
	Endpoint       string `json:"endpoint,omitempty"`
	Token          string `json:"token,omitempty"`
	AccountID      string `json:"account_id,omitempty"`
	DelegateID     string `json:"delegate_id,omitempty"`
	TaskID         string `json:"task_id,omitempty"`
	RunnerResponse bool   `json:"runner_response,omitempty"`
	TaskStatusV2   bool   `json:"task_status_v2,omitempty"`
}

// Ulimit is a limit of the container's processes. Name is the engine's name for
// it, such as "nofile". A Hard of 0 means the value of Soft.
type Ulimit struct {
	Name string `json:"name"`
	Soft int64  `json:"soft"`
	Hard int64  `json:"hard,omitempty"`
}
