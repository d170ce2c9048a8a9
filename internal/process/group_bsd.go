//go:build unix && !linux

package process

import (
	"os/exec"
	"syscall"
)

func prepare(cmd *exec.Cmd, opts Options) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: opts.Account.credential()}
}
