package process

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// job is a job object: it ends everything in it when it is closed, also when the
// delegate dies. A process that is started before its parent has been put into the
// job is not in it; there are microseconds for that.
type job struct{ handle windows.Handle }

func (j job) close() { _ = windows.CloseHandle(j.handle) }

func prepare(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

func startIn(cmd *exec.Cmd) (job, error) {
	handle, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return job{}, fmt.Errorf("create job object: %w", err)
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	_, err = windows.SetInformationJobObject(handle, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_ = windows.CloseHandle(handle)
		return job{}, err
	}
	if err := assign(handle, cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = windows.CloseHandle(handle)
		return job{}, fmt.Errorf("put process into job object: %w", err)
	}
	return job{handle: handle}, nil
}

func assign(job windows.Handle, pid int) error {
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return err
	}
	defer func() { _ = windows.CloseHandle(h) }()
	return windows.AssignProcessToJobObject(job, h)
}

// terminate asks the group with Ctrl-Break, the nearest thing to SIGTERM.
func (g *Group) terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.cmd.Process.Pid))
}

func (g *Group) kill() { _ = windows.TerminateJobObject(g.job.handle, 137) }

// alive says no: the grace ends with the first process.
func (g *Group) alive() bool { return false }

func signalOf(*os.ProcessState) (int, bool) { return 0, false }
