package libvirt

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/delegate-io/dlite/driver/vm"
)

// AgentPort is where a guest's agent serves.
const AgentPort = 9079

// Config says what the machines are. Machines of one Config are all alike.
type Config struct {
	// Socket is the daemon's and defaults to /var/run/libvirt/libvirt-sock. URI is
	// the driver there and defaults to qemu:///system.
	Socket, URI string
	// Type is the domain's and defaults to kvm. qemu emulates, which is slow.
	Type string
	// Arch, Machine and CPU are the processor's architecture, the machine's type and
	// the model. They default to x86_64, q35, and with kvm the host's model, else
	// QEMU's.
	Arch, Machine, CPU string
	// CPUs is their number and defaults to 1, MemoryMB is the memory in MiB and
	// defaults to 2048.
	CPUs, MemoryMB int
	// Kernel, Initrd and Append start a Linux without a boot loader. Without a
	// Kernel the Image has to start by itself.
	Kernel, Initrd, Append string
	// Image is the disk, in ImageFormat, which defaults to qcow2. It is never written
	// to: each machine has a layer of its own above it, as a volume in the storage
	// pool Pool, which defaults to "default" and has to be one of a folder.
	Image, ImageFormat, Pool string
	// Restrict keeps the guest from reaching anything but the agent's connections.
	// Without it the guest reaches whatever this host reaches, and at 10.0.2.2 also
	// what listens on this host's loopback only.
	Restrict bool
	// Forward are more TCP ports of the guest that are reached at 127.0.0.1, each at
	// a free port that the machine's Data tells (see [Data]).
	Forward []int
	// BootTimeout is how long a guest may take until its agent is ready. Defaults
	// to 2 minutes.
	BootTimeout time.Duration
	// Template replaces [DefaultTemplate]: the domain's XML with placeholders such as
	// ${id}, which DefaultTemplate documents. It must keep the name, the metadata, the
	// channel and the network.
	Template string
}

// Data is what [vm.Machine.Data] has as JSON.
type Data struct {
	// UUID is the domain's.
	UUID string `json:"uuid"`
	// Forward has a host and port for each of [Config.Forward].
	Forward map[int]string `json:"forward,omitempty"`
}

const (
	defaultMemory      = 2048
	defaultBootTimeout = 2 * time.Minute
)

// complete sets the defaults, and returns an error for the first wrong setting.
func (c Config) complete() (Config, error) {
	if c.Kernel == "" && c.Image == "" {
		return c, errors.New("there is nothing to start: set Image or Kernel")
	}
	if c.Kernel == "" && (c.Initrd != "" || c.Append != "") {
		return c, errors.New("set Kernel: Initrd and Append need one")
	}
	if c.CPUs < 0 || c.MemoryMB < 0 || c.BootTimeout < 0 {
		return c, errors.New("CPUs, MemoryMB and BootTimeout must not be negative")
	}
	for value, fallback := range map[*string]string{
		&c.Socket: "/var/run/libvirt/libvirt-sock", &c.URI: "qemu:///system", &c.Type: "kvm", &c.Arch: "x86_64",
		&c.Machine: "q35", &c.ImageFormat: "qcow2", &c.Pool: "default", &c.Template: DefaultTemplate,
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
			return c, fmt.Errorf("%s is not an absolute path, which the daemon needs", path)
		}
	}
	// A template with an unknown placeholder is an error now and not at the first machine.
	_, err := expand(c.Template, placeholders(c, vm.Spec{}, ""))
	return c, err
}
