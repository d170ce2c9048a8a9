package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startTime identifies the process that has an id now, across reboots too.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The second field is the name of the program in brackets. The name may hold any byte.
	i := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[i+1:]))
	if i < 0 || len(fields) < 20 {
		return "", errors.New("stat: unknown form")
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + ":" + fields[19], nil
}

// signalMarked sends sig to every process with one of the markers, and returns how many there are. It
// skips the processes of the process group except, unless except is 0.
func signalMarked(markers map[string]bool, sig syscall.Signal, except int) int {
	dir, err := os.Open("/proc")
	if err != nil {
		return 0
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	n := 0
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || !isMarked(pid, markers) {
			continue
		}
		if except != 0 {
			if group, err := syscall.Getpgid(pid); err != nil || group == except {
				continue
			}
		}
		n++
		// The second check through a handle spares a process that has taken over the id in between.
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			if errors.Is(err, unix.ENOSYS) {
				_ = syscall.Kill(pid, sig)
			}
			continue
		}
		if isMarked(pid, markers) {
			_ = unix.PidfdSendSignal(fd, sig, nil, 0)
		}
		_ = unix.Close(fd)
	}
	return n
}

// isMarked reports whether a process has one of the markers in its environment. A process that has
// ended has no environment, even if its parent has not waited for it.
func isMarked(pid int, markers map[string]bool) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	for len(env) > 0 {
		var entry []byte
		entry, env, _ = bytes.Cut(env, []byte{0})
		if marker, ok := bytes.CutPrefix(entry, []byte(MarkerVariable+"=")); ok {
			return markers[string(marker)]
		}
	}
	return false
}

// isAlone reports whether this process is the first of its PID namespace and no other process is in it. A search
// costs much more.
func isAlone() bool { return os.Getpid() == 1 && errors.Is(unix.Kill(-1, 0), unix.ESRCH) }

// KillMarked kills every process with one of the markers. It returns when they are gone or stop is
// closed. It repeats the search until it finds none, because the processes may fork meanwhile. Outside
// Linux it does nothing.
func KillMarked(stop <-chan struct{}, markers map[string]bool) error {
	if isAlone() {
		return nil
	}
	const rounds = 400
	n := 0
	for i := range rounds {
		if n = signalMarked(markers, syscall.SIGKILL, 0); n == 0 {
			return nil
		}
		// The first rounds catch forks. Later rounds wait for the kernel.
		select {
		case <-time.After(min(time.Duration(i), 20) * time.Millisecond):
		case <-stop:
			return fmt.Errorf("%d processes have not ended yet", n)
		}
	}
	return fmt.Errorf("%d processes do not end", n)
}
