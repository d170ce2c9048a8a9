//go:build unix

package process

import (
	"errors"
	"os"
	"syscall"
)

// job is empty: the process group and the control group are enough.
type job struct{}

func (job) close() {}

// start starts the process in its control group, or outside if the machine allows no control group.
func (g *Group) start() error {
	if g.opts.inside != nil {
		return g.opts.inside.start(g.cmd)
	}
	cg := g.opts.Cgroup
	if cg == nil {
		return g.cmd.Start()
	}
	err := cg.create()
	if err == nil {
		if err = cg.start(g.cmd); err == nil {
			g.cgroup = cg
			return nil
		}
		_ = cg.Remove()
	}
	if errors.Is(err, syscall.ETXTBSY) {
		return err
	}
	g.cmd = fresh(g.cmd)
	if g.opts.Outside != nil {
		if err := g.opts.Outside(); err != nil {
			return err
		}
	}
	if startErr := g.cmd.Start(); startErr != nil {
		return startErr // the control group was not the cause
	}
	cg.all.giveUp()
	return nil
}

// terminate sends SIGTERM to each process once: a program may take a second signal for impatience.
func (g *Group) terminate() {
	pid := g.cmd.Process.Pid
	_ = syscall.Kill(-pid, syscall.SIGTERM)
	switch {
	case g.cgroup != nil:
		g.cgroup.signal(syscall.SIGTERM, pid)
	case g.opts.Marker != "":
		signalMarked(map[string]bool{g.opts.Marker: true}, syscall.SIGTERM, pid)
	}
}

func (g *Group) killGroup() { _ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL) }

// killEscaped kills the processes that left the process group. It ignores errors and cancellation: the
// time is limited, and a cleanup finds the remaining processes by their record.
func (g *Group) killEscaped() {
	switch {
	case g.cgroup != nil:
		if !g.cgroup.removeEmpty() {
			_ = g.cgroup.Kill(nil)
		}
	case g.opts.Marker != "":
		_ = KillMarked(nil, map[string]bool{g.opts.Marker: true})
	}
}

// alive reports whether the process group or the control group has a member.
func (g *Group) alive() bool {
	return g.cgroup.populated() || !errors.Is(syscall.Kill(-g.cmd.Process.Pid, 0), syscall.ESRCH)
}

// Remains reports whether a process of a Background group runs after the first process has ended.
func (g *Group) Remains() bool {
	return g.alive() || g.cgroup == nil && g.opts.Marker != "" && signalMarked(map[string]bool{g.opts.Marker: true}, 0, 0) > 0
}

func signalOf(s *os.ProcessState) (int, bool) {
	ws, ok := s.Sys().(syscall.WaitStatus)
	return int(ws.Signal()), ok && ws.Signaled()
}
