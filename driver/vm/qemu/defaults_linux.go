package qemu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	defaultMemory      = 2048
	defaultBootTimeout = 2 * time.Minute
)

// complete sets the defaults, and returns an error for the first wrong setting.
func (c Config) complete() (Config, error) {
	if c.StateDir == "" {
		return c, errors.New("StateDir is missing: machines need a directory")
	}
	if c.Kernel == "" && c.Image == "" {
		return c, errors.New("nothing to boot: set Image or Kernel")
	}
	if c.Kernel == "" && (c.Initrd != "" || c.Append != "") {
		return c, errors.New("a machine with Initrd or Append needs a kernel: set Kernel")
	}
	if c.CPUs < 0 || c.MemoryMB < 0 || c.BootTimeout < 0 {
		return c, errors.New("CPUs, MemoryMB and BootTimeout must not be negative")
	}
	x86 := runtime.GOARCH == "amd64"
	c.Binary = first(c.Binary, map[bool]string{true: "qemu-system-x86_64", false: "qemu-system-aarch64"}[x86])
	c.ImageTool = first(c.ImageTool, "qemu-img")
	switch {
	case c.Machine != "":
	case !x86:
		c.Machine = "virt"
	case c.Kernel != "" && c.Image == "":
		c.Machine = "microvm"
	default:
		c.Machine = "q35"
	}
	if c.Accel == "" {
		c.Accel = accelerator()
		c.guessed = c.Accel == "kvm"
	}
	c.CPU = first(c.CPU, map[bool]string{true: "host", false: "max"}[strings.HasPrefix(c.Accel, "kvm")])
	c.CPUs, c.MemoryMB = max(c.CPUs, 1), first(c.MemoryMB, defaultMemory)
	c.BootTimeout = first(c.BootTimeout, defaultBootTimeout)
	c.Forward, c.ExtraArgs = slices.Clone(c.Forward), slices.Clone(c.ExtraArgs)

	for _, program := range []*string{&c.Binary, &c.ImageTool} {
		if program == &c.ImageTool && c.Image == "" {
			continue
		}
		path, err := exec.LookPath(*program)
		if err != nil {
			return c, fmt.Errorf("find the emulator: %w (install QEMU, or set Binary and ImageTool)", err)
		}
		*program = path
	}
	// QEMU runs in the machine's directory.
	for _, path := range []*string{&c.StateDir, &c.Binary, &c.ImageTool, &c.Kernel, &c.Initrd, &c.Image} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return c, err
		}
		*path = abs
	}
	for _, file := range c.files() {
		if _, err := os.Stat(file); err != nil {
			return c, fmt.Errorf("find the files of the machines: %w", err)
		}
	}
	return c, nil
}

// files returns the files that a machine starts with.
func (c Config) files() []string {
	return slices.DeleteFunc([]string{c.Binary, c.Kernel, c.Initrd, c.Image}, func(f string) bool { return f == "" })
}

func first[T comparable](values ...T) T {
	var zero T
	for _, v := range values {
		if v != zero {
			return v
		}
	}
	return zero
}

// accelerator returns kvm if the kernel can create a machine. The existence of /dev/kvm is not
// enough: the processor or the permissions may be missing.
func accelerator() string {
	const createMachine = 0xae01 // KVM_CREATE_VM
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return "tcg"
	}
	defer f.Close() //nolint:errcheck // nothing was written
	machine, err := unix.IoctlRetInt(int(f.Fd()), createMachine)
	if err != nil {
		return "tcg"
	}
	_ = unix.Close(machine)
	return "kvm"
}
