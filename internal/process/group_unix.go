//go:build unix

package process

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// job has no meaning here: the process group does it all.
type job struct{}

func (job) close() {}

func startIn(cmd *exec.Cmd) (job, error) { return job{}, cmd.Start() }

func (g *Group) terminate() { _ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGTERM) }

func (g *Group) kill() { _ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL) }

// alive reports whether the group has a member.
func (g *Group) alive() bool {
	return !errors.Is(syscall.Kill(-g.cmd.Process.Pid, 0), syscall.ESRCH)
}

func signalOf(s *os.ProcessState) (int, bool) {
	ws, ok := s.Sys().(syscall.WaitStatus)
	return int(ws.Signal()), ok && ws.Signaled()
}
