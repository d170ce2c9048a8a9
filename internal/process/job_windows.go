package process

import (
	"fmt"
	"os/exec"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Job is a job object: it ends everything in it when it is closed, also when the
// delegate dies. A process that is started before its parent has been put into the
// job is not in it; there are microseconds for that.
type Job struct{ handle windows.Handle }

// StartInJob starts cmd in a job of its own.
func StartInJob(cmd *exec.Cmd) (Job, error) {
	handle, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return Job{}, fmt.Errorf("create job object: %w", err)
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
		return Job{}, err
	}
	if err := assign(handle, cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = windows.CloseHandle(handle)
		return Job{}, fmt.Errorf("put process into job object: %w", err)
	}
	return Job{handle: handle}, nil
}

func assign(job windows.Handle, pid int) error {
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return err
	}
	defer func() { _ = windows.CloseHandle(h) }()
	return windows.AssignProcessToJobObject(job, h)
}

// Kill ends all that is in the job.
func (j Job) Kill() { _ = windows.TerminateJobObject(j.handle, 137) }

// Close lets go of the job, which ends what is left in it.
func (j Job) Close() { _ = windows.CloseHandle(j.handle) }
