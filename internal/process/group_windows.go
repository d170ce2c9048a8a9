package process

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// job is what a group is held in.
type job struct{ Job }

func (j job) close() { j.Close() }

func prepare(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

func startIn(cmd *exec.Cmd) (job, error) {
	j, err := StartInJob(cmd)
	return job{j}, err
}

// terminate asks the group with Ctrl-Break, the nearest thing to SIGTERM.
func (g *Group) terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.cmd.Process.Pid))
}

func (g *Group) kill() { g.job.Kill() }

// alive says no: the grace ends with the first process.
func (g *Group) alive() bool { return false }

func signalOf(*os.ProcessState) (int, bool) { return 0, false }
