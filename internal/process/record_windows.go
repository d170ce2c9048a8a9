package process

import (
	"os"
	"syscall"
)

// kill kills the first process. Its job has ended the others, together with the delegate.
func (r Record) kill() error {
	p, err := os.FindProcess(r.PID)
	if err != nil {
		return nil //nolint:nilerr // the process has ended
	}
	return p.Kill()
}

// signal does nothing: Windows has no polite way to end a process of another process group.
func (r Record) signal(syscall.Signal) {}
