//go:build unix

package process

import (
	"errors"
	"syscall"
)

func (r Record) kill() error {
	err := syscall.Kill(-r.PID, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

func (r Record) signal(sig syscall.Signal) { _ = syscall.Kill(-r.PID, sig) }
