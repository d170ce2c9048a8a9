//go:build !linux

package host

import (
	"os/exec"
	"syscall"
)

// cgroups makes nothing: only Linux has control groups.
type cgroups struct{}

func (*cgroups) named(string) *cgroup          { return nil }
func (*cgroups) within(string, string) *cgroup { return nil }

// cgroup is always nil.
type cgroup struct {
	path    string
	all     *cgroups
	outside func() error
}

func (*cgroups) giveUp() {}

func (*cgroup) make() error                { return nil }
func (*cgroup) start(cmd *exec.Cmd) error  { return cmd.Start() }
func (*cgroup) populated() bool            { return false }
func (*cgroup) signal(syscall.Signal, int) {}
func (*cgroup) kill(<-chan struct{}) error { return nil }
func (*cgroup) remove() error              { return nil }
func (*cgroup) vacate() bool               { return true }

func recordedCgroup(string) (*cgroup, error) { return nil, nil }
