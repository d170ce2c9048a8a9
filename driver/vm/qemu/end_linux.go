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

// killTime bounds the wait for a process that was killed. One that takes longer
// hangs in the kernel.
const killTime = 20 * time.Second

// held reports whether a process of the machine in dir lives, or one that is about
// to become it.
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

// endProcess kills the processes of a machine and returns when they are gone. The command
// line finds them; the lock says that there are no more, also none that was
// started a moment ago by a delegate that was killed and has no command line yet.
func endProcess(ctx context.Context, machine, dir string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, killTime, errors.New("its process does not end"))
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

// killNamed kills whatever runs with the machine's name.
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

// killOne kills a process by a handle, so that another one that gets its number
// meanwhile is safe, and waits for its end.
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
	// The handle becomes readable with the process's end.
	const look = 100 // milliseconds, for the context
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}, look)
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
