package podagent

// Where things are in the containers of a pod. Each is a volume of its own.
const (
	// BinDir holds the program and the hub's socket. Step containers have it
	// read-only.
	BinDir = "/dlite/bin"
	// Program is the agent's binary.
	Program = BinDir + "/agent"
	// Socket is where the agents of the steps reach the hub.
	Socket = BinDir + "/hub.sock"
	// ControlDir is the hub's own. No step has it.
	ControlDir = "/dlite/control"
	// Control is where the delegate reaches the hub.
	Control = ControlDir + "/hub.sock"
	// WorkDir is for scratch folders, MemoryDir for what must not touch a disk.
	WorkDir   = "/dlite/work"
	MemoryDir = "/dlite/memory"
	// Workspace is shared by all steps of the transaction.
	Workspace = "/workspace"
)

// HubContainer is the name of the hub's container, whose agent makes what the
// steps share.
const HubContainer = "hub"

// Variables that the driver sets in the containers. No step gets them.
const (
	// EnvToken is the hub's secret, or what a step's agent has of it ([TokenOf]).
	EnvToken = "DLITE_POD_TOKEN"
	// EnvContainer is the container's own name.
	EnvContainer = "DLITE_POD_CONTAINER"
	// EnvGrace is how long a step that is stopped has between SIGTERM and SIGKILL,
	// as a duration.
	EnvGrace = "DLITE_POD_GRACE"
)
