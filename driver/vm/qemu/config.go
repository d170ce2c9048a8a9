package qemu

import "time"

// AgentPort is where a guest's agent serves.
const AgentPort = 9079

// Config says what the machines are. Machines of one Config are all alike.
type Config struct {
	// StateDir keeps a folder for each machine, and the snapshots. It must be on a
	// local disk, and large enough for what the machines write to theirs. It may be
	// shared with other providers, also of other processes. Required.
	StateDir string
	// Binary is the emulator. Defaults to qemu-system-x86_64, or that of this
	// machine's architecture, from the PATH. ImageTool defaults to qemu-img.
	Binary    string
	ImageTool string
	// Machine is QEMU's machine type with its properties. Defaults to microvm on
	// x86 where there is a Kernel and no Image, which starts fastest, else to q35; on
	// arm64 to virt.
	Machine string
	// Accel is QEMU's accelerator with its properties. Defaults to kvm where
	// /dev/kvm takes a machine, else to tcg, which emulates and is slow.
	Accel string
	// CPU is the model. Defaults to host with kvm, else to max.
	CPU string
	// CPUs is their number and defaults to 1, MemoryMB is the memory in MiB and
	// defaults to 2048.
	CPUs, MemoryMB int
	// Kernel, Initrd and Append start a Linux without a boot loader. Without a
	// Kernel the Image has to start by itself.
	Kernel, Initrd, Append string
	// Image is the disk, qcow2 or raw. It is never written to: each machine has a
	// layer of its own above it. Without one, Initrd is all that the guest has.
	Image string
	// Snapshot says to start one guest and to let all others go on from the moment
	// when its agent was ready. The snapshot is made by the first Create, once for a
	// configuration and the files that it names, and kept below StateDir. Machines
	// share those pages of its memory that they do not write to.
	Snapshot bool
	// Restrict keeps the guest from reaching anything but the agent's connections.
	// Without it the guest reaches whatever this host reaches, and at 10.0.2.2 also
	// what listens on this host's loopback only.
	Restrict bool
	// Forward are more TCP ports of the guest that are reached at 127.0.0.1, each at
	// a free port that the machine's Data tells (see [Data]).
	Forward []int
	// User is whom QEMU becomes once it has opened its files, which takes a delegate
	// that is root. Empty leaves it the delegate's user.
	User string
	// NoSandbox is for an emulator that was built without seccomp. Otherwise QEMU
	// gives up the system calls that it does not need.
	NoSandbox bool
	// BootTimeout is how long a guest may take until its agent is ready. Defaults
	// to 2 minutes.
	BootTimeout time.Duration
	// ExtraArgs are added to QEMU's command line. Anybody can read that.
	ExtraArgs []string

	guessed bool // that Accel is kvm
}

// Data is what [vm.Machine.Data] has as JSON.
type Data struct {
	PID int `json:"pid"`
	// Forward has a host and port for each of [Config.Forward].
	Forward map[int]string `json:"forward,omitempty"`
}
