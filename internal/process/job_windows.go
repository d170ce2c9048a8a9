package process

import (
	"fmt"
	"os/exec"
	"unsafe"

	"golang.org/x/sys/windows"
)

// job is a job object. Windows ends all processes in it when the job is closed, also when the delegate
// dies. A process that the first process starts within microseconds, before it is in the job, is not in
// the job.
type job struct{ handle windows.Handle }

// startInJob starts cmd in a new job.
func startInJob(cmd *exec.Cmd) (job, error) {
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

// kill ends all processes in the job.
func (j job) kill() { _ = windows.TerminateJobObject(j.handle, 137) }

// close closes the job, which ends the processes in it.
func (j job) close() { _ = windows.CloseHandle(j.handle) }
