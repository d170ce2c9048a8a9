package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// killTime limits the wait for a killed process. A process that takes longer hangs in the kernel.
const killTime = 20 * time.Second

// held reports whether a process of the machine in dir exists, or is about to start.
func held(dir string) (bool, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // nothing is written to it
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("try the lock of %s: %w", dir, err)
	}
	return false, nil
}

// endProcess kills the processes of a machine and returns when they are gone. It finds them by
// their command line. The lock shows that there are no more: a delegate that was killed may have
// started one that has no command line yet.
func endProcess(ctx context.Context, machine, dir string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, killTime, errors.New("its process did not end"))
	defer cancel()
	for again := time.NewTicker(10 * time.Millisecond); ; {
		if err := killNamed(ctx, machine); err != nil {
			again.Stop()
			return err
		}
		alive := false
		if dir != "" {
			var err error
			if alive, err = held(dir); err != nil {
				again.Stop()
				return err
			}
		}
		if !alive {
			again.Stop()
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return context.Cause(ctx)
		}
	}
}

// killNamed kills all processes with the machine's name.
func killNamed(ctx context.Context, machine string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !isNamed(pid, machine) {
			continue
		}
		if err := killOne(ctx, pid, machine); err != nil {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return nil
}

func isNamed(pid int, machine string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(line, []byte("\x00-name\x00"+machine+"\x00-machine\x00"))
}

// killOne kills a process and waits for its end. The process handle prevents that it hits another
// process with a reused id.
func killOne(ctx context.Context, pid int, machine string) error {
	handle, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(handle) //nolint:errcheck // nothing was written
	if !isNamed(pid, machine) {
		return nil
	}
	if err := unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	// The handle becomes readable when the process ends.
	const interval = 100 // milliseconds between checks of the context
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}, interval)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case n > 0:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}
