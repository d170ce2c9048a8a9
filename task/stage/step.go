package stage

// Step is one step of a stage: StartStepRequest of the agent API (PROTOCOL 5),
// under its names. With an Image it runs in a container, otherwise on the host.
type Step struct {
	ID             string `json:"id"`
	Name           string `json:"name,omitempty"`
	StageRuntimeID string `json:"stage_runtime_id,omitempty"`
	// Kind is "Run", "RunTest" or "RunTestsV2". Empty means "Run".
	Kind string `json:"kind,omitempty"`
	Run  Run    `json:"run"`
	// Detach makes it a background step: it is started and the answer is given
	// without waiting for its end.
	Detach bool `json:"detach,omitempty"`
	// Ready makes the answer of a background step wait until it can be used.
	Ready *Ready `json:"ready,omitempty"`
	// Plugin is a program to fetch and run on the host instead of Run.
	Plugin      *Plugin           `json:"plugin,omitempty"`
	Environment map[string]string `json:"environment"`
	WorkingDir  string            `json:"working_dir,omitempty"`
	// Timeout is in seconds; 0 is none.
	Timeout int `json:"timeout,omitempty"`
	// User to run as, "uid[:gid]" or a name. Empty keeps the image's or ours.
	User string `json:"user,omitempty"`
	// SoftStop asks to end a step with SIGTERM and a grace before SIGKILL.
	SoftStop bool `json:"soft_stop,omitempty"`

	LogKey    string     `json:"log_key,omitempty"`
	LogDrone  bool       `json:"log_drone,omitempty"`
	LogConfig *LogConfig `json:"log_config,omitempty"`
	// Secrets are values that no output may show.
	Secrets []string `json:"secrets,omitempty"`

	// OutputVars and Outputs name shell variables to read after the script.
	OutputVars    []string       `json:"output_vars,omitempty"`
	Outputs       []Output       `json:"outputs,omitempty"`
	OutputVarFile string         `json:"output_var_file,omitempty"`
	SecretVarFile string         `json:"secret_var_file,omitempty"`
	ScratchDir    string         `json:"scratch_dir,omitempty"`
	TestReport    *TestReport    `json:"test_report,omitempty"`
	Files         []*File        `json:"files,omitempty"`
	Volumes       []*VolumeMount `json:"volumes,omitempty"`

	// What follows concerns containers alone.

	Image string `json:"image,omitempty"`
	// Pull is "default", "Always", "IfNotPresent" or "Never". Empty is default:
	// Always for the tag latest, otherwise IfNotPresent.
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

	// Ulimits are limits of the container's processes. Ours.
	Ulimits []*Ulimit `json:"ulimits,omitempty"`

	MountDockerSocket bool           `json:"mount_docker_socket,omitempty"`
	ProcessConfig     *ProcessConfig `json:"process_config,omitempty"`
	StepStatus        *StepStatus    `json:"step_status,omitempty"`
}

// Run is what a step executes: argv is Entrypoint, then Command.
type Run struct {
	Entrypoint []string `json:"entrypoint,omitempty"`
	Command    []string `json:"commands,omitempty"`
}

// Ready says when a background step can be used. Exactly one of Port, HTTP and
// Command is set. Ours: plain managers do not send it.
type Ready struct {
	// Port is a TCP port of the step that must accept a connection.
	Port int `json:"port,omitempty"`
	// HTTP is a URL, on the step itself with "localhost" as its host, that must
	// answer with a status below 400.
	HTTP string `json:"http,omitempty"`
	// Command must exit with 0 where the step runs.
	Command []string `json:"command,omitempty"`
	// Timeout is in seconds; 0 is 60. The step is stopped and fails when it is
	// not ready by then.
	Timeout int `json:"timeout,omitempty"`
	// IntervalMillis is the time between attempts, in milliseconds; 0 is 200.
	IntervalMillis int `json:"interval_ms,omitempty"`
}

// Plugin is a program named by URL, fetched once, verified and cached (D4). Its
// settings become variables with the prefix PLUGIN_. Ours.
type Plugin struct {
	Executables []Executable      `json:"executables"`
	Settings    map[string]string `json:"settings,omitempty"`
	Args        []string          `json:"args,omitempty"`
}

// Executable is a plugin's program for one platform, in Go's names for those.
type Executable struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	URL  string `json:"url"`
	// SHA256 is the checksum of what the URL serves, in hexadecimal. Required.
	SHA256 string `json:"sha256"`
	// Compressed says that it is compressed with zstd.
	Compressed bool `json:"compressed,omitempty"`
}

// Output is a variable that a step hands on. In a request Value is the name of
// the shell variable to read; in a response it is the value.
type Output struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// Type is [OutputString] or [OutputSecret]. Empty is a string.
	Type string `json:"type,omitempty"`
}

// The types of an [Output].
const (
	OutputString = "STRING"
	OutputSecret = "SECRET"
)

// VolumeMount mounts a transaction's volume, by its name or id, at Path.
type VolumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// DeviceMount gives a container a device of the host, by its volume's name.
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

// TestReport names the reports that a step leaves behind.
type TestReport struct {
	Kind  string `json:"kind,omitempty"`
	Junit struct {
		Paths []string `json:"paths,omitempty"`
	} `json:"junit,omitzero"`
}

// ProcessConfig says how a foreign agent treats a step's processes. Ours always
// kills what runs when its time is up.
type ProcessConfig struct {
	KillProcessOnContextCancel bool `json:"kill_process_on_context_cancel,omitempty"`
}

// StepStatus makes an agent report the step's end to the manager by itself.
type StepStatus struct {
	Endpoint       string `json:"endpoint,omitempty"`
	Token          string `json:"token,omitempty"`
	AccountID      string `json:"account_id,omitempty"`
	DelegateID     string `json:"delegate_id,omitempty"`
	TaskID         string `json:"task_id,omitempty"`
	RunnerResponse bool   `json:"runner_response,omitempty"`
	TaskStatusV2   bool   `json:"task_status_v2,omitempty"`
}

// Ulimit is one limit, under the name that the engine has for it: "nofile",
// "nproc", ... A Hard of 0 is the same as Soft.
type Ulimit struct {
	Name string `json:"name"`
	Soft int64  `json:"soft"`
	Hard int64  `json:"hard,omitempty"`
}
