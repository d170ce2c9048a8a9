//go:build !linux

package process

import (
	"os/exec"
	"syscall"
)

// Cgroups creates nothing: only Linux has control groups.
type Cgroups struct{}

// CgroupDir returns "": only Linux has control groups.
func CgroupDir() string { return "" }

// Named returns nil.
func (*Cgroups) Named(string) *Cgroup { return nil }

// Within returns nil.
func (*Cgroups) Within(string, string, func(string) bool) *Cgroup { return nil }

func (*Cgroups) giveUp() {}

// Cgroup is always nil.
type Cgroup struct{ all *Cgroups }

// OpenCgroup returns nil.
func OpenCgroup(string, func(string) bool) (*Cgroup, error) { return nil, nil }

// Path returns "".
func (*Cgroup) Path() string { return "" }

// Kill does nothing.
func (*Cgroup) Kill(<-chan struct{}) error { return nil }

// Remove does nothing.
func (*Cgroup) Remove() error { return nil }

func (*Cgroup) create() error              { return nil }
func (*Cgroup) start(cmd *exec.Cmd) error  { return cmd.Start() }
func (*Cgroup) populated() bool            { return false }
func (*Cgroup) signal(syscall.Signal, int) {}
func (*Cgroup) removeEmpty() bool          { return true }
