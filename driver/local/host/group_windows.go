package host

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"

	"github.com/delegate-io/dlite/internal/process"
)

// group is a process and what it starts, in a job object.
type group struct {
	cmd    *exec.Cmd
	marker string
	job    process.Job
	cg     *cgroup // always nil
}

func prepareCommand(cmd *exec.Cmd, acct *account) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
	return nil
}

func startGroup(cmd *exec.Cmd, marker string, _ *cgroup) (*group, error) {
	job, err := process.StartInJob(cmd)
	if err != nil {
		return nil, err
	}
	return &group{cmd: cmd, marker: marker, job: job}, nil
}

// join starts cmd in a job of its own: it ends with g's step at the latest, as
// the step waits for it.
func (g *group) join(cmd *exec.Cmd) (*group, error) { return startGroup(cmd, g.marker, nil) }

// terminate asks the group with Ctrl-Break, the nearest thing to SIGTERM.
func (g *group) terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.cmd.Process.Pid))
}

func (g *group) kill() { g.job.Kill() }

// alive says no: a grace ends with the first process.
func (g *group) alive() bool { return false }

// left says no: whatever a step leaves is in its job and is not asked for.
func (g *group) left() bool { return false }

func (g *group) close() { g.job.Close() }

// killRecorded ends a process of which only the record is left. Its job object
// has ended its children together with the delegate that started it.
func killRecorded(data processData) error {
	if start, err := processStart(data.PID); err != nil || start != data.Start {
		return nil // ended
	}
	p, err := os.FindProcess(data.PID)
	if err != nil {
		return nil
	}
	return p.Kill()
}

// signalRecorded does nothing: there is no polite way to end a process.
func signalRecorded(processData, syscall.Signal) error { return nil }

func exitCode(s *os.ProcessState) int {
	if s == nil {
		return 255
	}
	return s.ExitCode()
}

// account is a user to run a step as; there are none on Windows.
type account struct {
	name, home string
}

func findAccount(spec string) (*account, error) {
	if spec == "" {
		return nil, nil
	}
	return nil, fmt.Errorf("user %q: steps on a Windows host run as the delegate's user", spec)
}
