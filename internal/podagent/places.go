package podagent

// Paths in the containers of a pod. Each directory is a separate volume.
const (
	// BinDir has the program and the socket of the hub. Step containers mount it
	// read-only.
	BinDir = "/dlite/bin"
	// Program is the binary of the agent.
	Program = BinDir + "/agent"
	// Socket is the socket of the hub for the agents of the steps.
	Socket = BinDir + "/hub.sock"
	// ControlDir belongs to the hub. Step containers do not mount it.
	ControlDir = "/dlite/control"
	// Control is the socket of the hub for the delegate.
	Control = ControlDir + "/hub.sock"
	// WorkDir has scratch directories, MemoryDir files that must not be on a disk.
	WorkDir   = "/dlite/work"
	MemoryDir = "/dlite/memory"
	// Workspace is the directory that all steps of the transaction share.
	Workspace = "/workspace"
)

// HubContainer is the name of the container of the hub. Its agent creates the files and
// directories that the steps share.
const HubContainer = "hub"

// Variables that the driver sets in the containers. Steps do not get them.
const (
	// EnvToken is the secret of the hub, or the token of the agent of a step ([TokenOf]).
	EnvToken = "DLITE_POD_TOKEN"
	// EnvContainer is the name of the container.
	EnvContainer = "DLITE_POD_CONTAINER"
	// EnvGrace is the time between SIGTERM and SIGKILL for a step that is stopped, as
	// a Go duration.
	EnvGrace = "DLITE_POD_GRACE"
)
