package qemu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/driver/vm/internal/provider"
)

// File descriptors that QEMU inherits.
const (
	qmpFile  = 3
	bootFile = 4
)

const (
	diskFile   = "disk.qcow2" // in QEMU's working directory
	memoryFile = "memory"
	agentChar  = "agent"
)

// memory describes where a machine's memory is: anonymous, in a file that becomes a snapshot, or a
// private view of a snapshot's file.
type memory struct {
	file   string
	shared bool
}

// arguments returns QEMU's command line for a machine. A snapshot and the machines restored from
// it differ in name and memory only.
func (c Config) arguments(name string, mem memory, paused bool) []string {
	machine := c.Machine
	if mem.file != "" {
		machine += ",memory-backend=memory"
	}
	args := []string{
		"-name", name, "-machine", machine, "-accel", c.Accel, "-cpu", c.CPU,
		"-smp", strconv.Itoa(c.CPUs), "-m", strconv.Itoa(c.MemoryMB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-chardev", fmt.Sprintf("socket,id=qmp,fd=%d", qmpFile), "-mon", "chardev=qmp,mode=control",
		// A step may write a secret to the console, so the console is not written to a disk.
		"-chardev", "ringbuf,id=console,size=65536", "-serial", "chardev:console",
	}
	if mem.file != "" {
		share := map[bool]string{true: "on", false: "off"}[mem.shared]
		args = append(args, "-object", fmt.Sprintf("memory-backend-file,id=memory,size=%dM,mem-path=%s,share=%s", c.MemoryMB, comma(mem.file), share))
	}
	if c.Kernel != "" {
		args = append(args, "-kernel", c.Kernel)
		if c.Initrd != "" {
			args = append(args, "-initrd", c.Initrd)
		}
		if c.Append != "" {
			args = append(args, "-append", c.Append)
		}
	}
	args = append(args,
		"-device", c.device("virtio-serial"),
		"-chardev", fmt.Sprintf("socket,id=%s,fd=%d", agentChar, bootFile),
		"-device", "virtserialport,chardev="+agentChar+",name="+provider.PortName,
		"-device", c.device("virtio-rng"),
		"-netdev", c.network(), "-device", c.device("virtio-net", "netdev=net"),
	)
	if c.Image != "" {
		// A machine does not survive its host, so it need not wait for the host's disks.
		args = append(args, "-drive", "if=none,id=disk,format=qcow2,discard=unmap,cache=unsafe,file="+diskFile,
			"-device", c.device("virtio-blk", "drive=disk"))
	}
	if !c.NoSandbox {
		sandbox := "on,obsolete=deny,spawn=deny,resourcecontrol=deny"
		if c.User == "" {
			sandbox += ",elevateprivileges=deny" // -runas needs it
		}
		args = append(args, "-sandbox", sandbox)
	}
	if c.User != "" {
		args = append(args, "-runas", c.User)
	}
	if paused {
		args = append(args, "-S", "-incoming", "defer")
	}
	return append(args, c.ExtraArgs...)
}

// network makes the kernel choose the host's ports, so that no other process can take them.
func (c Config) network() string {
	n := "user,id=net"
	if c.Restrict {
		n += ",restrict=on"
	}
	for _, port := range append([]int{agentPort}, c.Forward...) {
		n += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:0-:%d", port)
	}
	return n
}

// device returns a virtio device for the bus of the machine type.
func (c Config) device(kind string, properties ...string) string {
	bus, more := "-pci", properties
	switch {
	case c.Machine == "microvm" || strings.HasPrefix(c.Machine, "microvm,"):
		bus = "-device"
	case kind == "virtio-net":
		more = append(more, "romfile=") // the machine never boots from the network
	}
	return strings.Join(append([]string{kind + bus}, more...), ",")
}

// comma escapes a value in a list of options: QEMU requires doubled commas.
func comma(value string) string { return strings.ReplaceAll(value, ",", ",,") }
