package process

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func prepare(cmd *exec.Cmd, opts Options) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: opts.Account.credential()}
	if !opts.Survive {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
}

// await returns when the process has ended. Its id, and so the id of the group, stays taken until the
// process is waited for.
func (g *Group) await() {
	pid := g.cmd.Process.Pid
	if awaitHandle(pid) == nil {
		return
	}
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// awaitHandle waits for a child through a handle that the runtime polls. A call of waitid would occupy a thread,
// and the runtime would look for other work for that thread all the time. It fails on Linux before 5.10.
func awaitHandle(pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return err
	}
	handle := os.NewFile(uintptr(fd), "process")
	defer func() { _ = handle.Close() }()
	raw, err := handle.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		var n int
		for failed = unix.EINTR; errors.Is(failed, unix.EINTR); {
			n, failed = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		}
		return n > 0 || failed != nil
	})
	return errors.Join(err, failed)
}
