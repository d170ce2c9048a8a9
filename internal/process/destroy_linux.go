package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Destroy kills the first process and returns when it has ended, or stop is closed. If it is the init of a
// PID namespace, all processes of the namespace have ended then.
func (r Record) Destroy(stop <-chan struct{}) error {
	if r.PID <= 1 {
		return nil
	}
	fd, err := unix.PidfdOpen(r.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", r.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !r.Running() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", r.PID, err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("process %d: %w", r.PID, err)
		}
		if n > 0 {
			_, _ = unix.Wait4(r.PID, nil, unix.WNOHANG, nil) // if it is a child of this process
			return nil
		}
		select {
		case <-stop:
			return fmt.Errorf("process %d does not end", r.PID)
		default:
		}
	}
}
