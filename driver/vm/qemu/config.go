package qemu

import "time"

// agentPort is the port of a guest's agent.
const agentPort = 9079

// Config describes the machines. All machines of a Config are alike.
type Config struct {
	// StateDir contains a directory for each machine, and the snapshots. It must be on a local
	// disk with enough space for what the machines write. Several providers and processes may
	// share it. Required.
	StateDir string
	// Binary is the emulator. It defaults to qemu-system-x86_64, or the binary of the host's
	// architecture, from the PATH. ImageTool defaults to qemu-img.
	Binary    string
	ImageTool string
	// Machine is QEMU's machine type with its properties. On x86 it defaults to microvm, which
	// boots fastest, if Kernel is set and Image is not, and to q35 otherwise. On arm64 it defaults
	// to virt.
	Machine string
	// Accel is QEMU's accelerator with its properties. It defaults to kvm if /dev/kvm can create a
	// machine, and to tcg otherwise. tcg emulates and is slow.
	Accel string
	// CPU is the processor model. It defaults to host with kvm, and to max otherwise.
	CPU string
	// CPUs is the number of processors and defaults to 1. MemoryMB is the memory in MiB and
	// defaults to 2048.
	CPUs, MemoryMB int
	// Kernel, Initrd and Append boot a Linux kernel directly. Without Kernel, the Image must be
	// bootable.
	Kernel, Initrd, Append string
	// Image is the disk, qcow2 or raw. QEMU never writes to it: each machine has its own overlay.
	// It may be empty if Initrd is sufficient.
	Image string
	// Snapshot boots one guest and restores all other machines from its state when its agent was
	// ready. The first Create makes the snapshot, once for each configuration and its files, and
	// stores it below StateDir. Machines share the memory pages that they do not change.
	Snapshot bool
	// Restrict limits the guest's network to the agent's connections. Otherwise the guest reaches
	// the networks of this host, and the host's loopback services at 10.0.2.2.
	Restrict bool
	// Forward lists more TCP ports of the guest. Each is available at a free port of 127.0.0.1,
	// which the machine's Data contains (see [Data]).
	Forward []int
	// User is the user that QEMU switches to after it has opened its files. This requires a
	// delegate that runs as root. Empty means the delegate's user.
	User string
	// NoSandbox disables seccomp, for an emulator that was built without it. By default QEMU gives
	// up the system calls that it does not need.
	NoSandbox bool
	// BootTimeout limits the time until a guest's agent is ready. It defaults to 2 minutes.
	BootTimeout time.Duration
	// ExtraArgs are appended to QEMU's command line, which all users of the host can read.
	ExtraArgs []string

	guessed bool // Accel defaulted to kvm
}

// Data is the JSON value of [vm.Machine.Data].
type Data struct {
	PID int `json:"pid"`
	// Forward has the host and port for each port of [Config.Forward].
	Forward map[int]string `json:"forward,omitempty"`
}
