package process

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

func prepare(cmd *exec.Cmd, _ Options) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

func (g *Group) start() (err error) {
	g.job, err = startInJob(g.cmd)
	return err
}

// terminate sends Ctrl-Break, which is the closest equivalent of SIGTERM.
func (g *Group) terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.cmd.Process.Pid))
}

func (g *Group) killGroup() { g.job.kill() }

// killEscaped does nothing: no process leaves the job.
func (g *Group) killEscaped() {}

// alive returns false: the patience ends with the first process.
func (g *Group) alive() bool { return false }

// Remains returns false: a job does not report its processes.
func (g *Group) Remains() bool { return false }

func signalOf(*os.ProcessState) (int, bool) { return 0, false }
