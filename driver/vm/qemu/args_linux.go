package qemu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/driver/vm"
)

// Files that QEMU gets from the delegate when it starts, by number.
const (
	qmpFile  = 3
	bootFile = 4
)

const (
	diskFile   = "disk.qcow2" // in the folder where QEMU runs
	memoryFile = "memory"
	agentChar  = "agent"
)

// memory is where a machine's memory is: nowhere, in a file that is a snapshot's to
// be, or a private view of a snapshot's.
type memory struct {
	file   string
	shared bool
}

// arguments are QEMU's for a machine. A snapshot and the machines that go on from
// it differ in nothing but name and memory.
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
		// What a step writes to the console may be a secret: it goes to no disk.
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
		"-device", "virtserialport,chardev="+agentChar+",name="+vm.PortName,
		"-device", c.device("virtio-rng"),
		"-netdev", c.network(), "-device", c.device("virtio-net", "netdev=net"),
	)
	if c.Image != "" {
		// A machine does not survive its host: nothing is gained by waiting for disks.
		args = append(args, "-drive", "if=none,id=disk,format=qcow2,discard=unmap,cache=unsafe,file="+diskFile,
			"-device", c.device("virtio-blk", "drive=disk"))
	}
	if !c.NoSandbox {
		sandbox := "on,obsolete=deny,spawn=deny,resourcecontrol=deny"
		if c.User == "" {
			sandbox += ",elevateprivileges=deny" // it would not get to its user either
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

// network lets the kernel choose the host's ports: nobody else can take one
// between the choice and its use.
func (c Config) network() string {
	n := "user,id=net"
	if c.Restrict {
		n += ",restrict=on"
	}
	for _, port := range append([]int{AgentPort}, c.Forward...) {
		n += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:0-:%d", port)
	}
	return n
}

// device is a virtio device on the bus that the machine has.
func (c Config) device(kind string, properties ...string) string {
	bus, more := "-pci", properties
	switch {
	case c.Machine == "microvm" || strings.HasPrefix(c.Machine, "microvm,"):
		bus = "-device"
	case kind == "virtio-net":
		more = append(more, "romfile=") // the machine never starts from the network
	}
	return strings.Join(append([]string{kind + bus}, more...), ",")
}

// comma is a value within a list, where QEMU wants commas twice.
func comma(value string) string { return strings.ReplaceAll(value, ",", ",,") }
