package libvirt

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/delegate-io/dlite/driver/vm"
)

// agentPort is the port of a guest's agent.
const agentPort = 9079

// Config describes the machines. All machines of a Config are alike.
type Config struct {
	// Socket is the daemon's socket and defaults to /var/run/libvirt/libvirt-sock. URI is the
	// driver and defaults to qemu:///system.
	Socket, URI string
	// Type is the domain type and defaults to kvm. The type qemu emulates, which is slow.
	Type string
	// Arch is the processor architecture and defaults to x86_64. Machine is the machine type and
	// defaults to q35. CPU is the processor model and defaults to the host's with kvm, and to
	// QEMU's otherwise.
	Arch, Machine, CPU string
	// CPUs is the number of processors and defaults to 1. MemoryMB is the memory in MiB and
	// defaults to 2048.
	CPUs, MemoryMB int
	// Kernel, Initrd and Append boot a Linux kernel directly. Without Kernel, the Image must be
	// bootable.
	Kernel, Initrd, Append string
	// Image is the disk, in ImageFormat, which defaults to qcow2. The daemon never writes to it:
	// each machine has its own overlay, as a volume in the storage pool Pool. Pool defaults to
	// "default" and must be a directory pool.
	Image, ImageFormat, Pool string
	// Restrict limits the guest's network to the agent's connections. Otherwise the guest reaches
	// the networks of this host, and the host's loopback services at 10.0.2.2.
	Restrict bool
	// Forward lists more TCP ports of the guest. Each is available at a free port of 127.0.0.1,
	// which the machine's Data contains under "forward", by the port of the guest.
	Forward []int
	// BootTimeout limits the time until a guest's agent is ready. It defaults to 2 minutes.
	BootTimeout time.Duration
	// Template replaces the default template: the domain's XML with placeholders. It must keep the
	// name, the metadata, the channel and the network. The values of the placeholders are text with
	// XML's special characters escaped, or whole elements:
	//
	//	${type} ${arch} ${machine}   Type, Arch and Machine
	//	${id}                        the machine's id, which is the domain's name
	//	${metadata}                  the element by which the driver finds its machines
	//	${memory_mb} ${cpus}         MemoryMB and CPUs
	//	${boot}                      elements of kernel, initrd and command line, empty without Kernel
	//	${cpu}                       the element of CPU
	//	${disk}                      the element of the machine's disk, empty without Image
	//	${port}                      the name of the serial port that the agent listens on
	//	${network}                   QEMU's user-mode network, with the ports that it forwards
	//
	// "$$" is a dollar sign.
	Template string
}

// machineData is the JSON value of [vm.Machine.Data].
type machineData struct {
	// UUID is the domain's id.
	UUID string `json:"uuid"`
	// Forward has the host and port for each port of [Config.Forward].
	Forward map[int]string `json:"forward,omitempty"`
}

const (
	defaultMemory      = 2048
	defaultBootTimeout = 2 * time.Minute
)

// complete sets the defaults, and returns an error for the first wrong setting.
func (c Config) complete() (Config, error) {
	if c.Kernel == "" && c.Image == "" {
		return c, errors.New("nothing to boot: set Image or Kernel")
	}
	if c.Kernel == "" && (c.Initrd != "" || c.Append != "") {
		return c, errors.New("a machine with Initrd or Append needs a kernel: set Kernel")
	}
	if c.CPUs < 0 || c.MemoryMB < 0 || c.BootTimeout < 0 {
		return c, errors.New("CPUs, MemoryMB and BootTimeout must not be negative")
	}
	for value, fallback := range map[*string]string{
		&c.Socket: "/var/run/libvirt/libvirt-sock", &c.URI: "qemu:///system", &c.Type: "kvm", &c.Arch: "x86_64",
		&c.Machine: "q35", &c.ImageFormat: "qcow2", &c.Pool: "default", &c.Template: defaultTemplate,
	} {
		if *value == "" {
			*value = fallback
		}
	}
	c.CPUs = max(c.CPUs, 1)
	if c.MemoryMB == 0 {
		c.MemoryMB = defaultMemory
	}
	if c.BootTimeout == 0 {
		c.BootTimeout = defaultBootTimeout
	}
	c.Forward = slices.Clone(c.Forward)
	for _, path := range []string{c.Socket, c.Kernel, c.Initrd, c.Image} {
		if path != "" && !filepath.IsAbs(path) {
			return c, fmt.Errorf("%s is not an absolute path: the daemon needs one", path)
		}
	}
	// An unknown placeholder is an error now, not when the first machine is created.
	_, err := expand(c.Template, placeholders(c, vm.Spec{}, ""))
	return c, err
}
