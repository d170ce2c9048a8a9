package process

import (
	"errors"
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
	for errors.Is(unix.Waitid(unix.P_PID, g.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}
