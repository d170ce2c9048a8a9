package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"

	"golang.org/x/sys/unix"
)

// runAsInit does the work of an init if this is the first process of a machine or a
// container, and runs the program itself as a child. The init reaps every process that
// ends, so it must not start other children: it would reap them too. The exit code is
// the child's.
func runAsInit() (code int, isInit bool) {
	if os.Getpid() != 1 {
		return 0, false
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0] // /proc is not mounted yet
	}
	cmd := exec.Command(self, os.Args[1:]...) //nolint:gosec,noctx // this program
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "agent: start:", err)
		return 1, true
	}
	for s := range signals {
		// SIGURG is the Go runtime's signal to itself.
		if s != unix.SIGCHLD && s != unix.SIGURG {
			_ = cmd.Process.Signal(s)
		}
		if code, ended := reap(cmd.Process.Pid); ended {
			return code, true
		}
	}
	return 1, true
}

// reap waits for all processes that have ended, and reports whether child is one of them.
func reap(child int) (code int, ended bool) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || pid == 0:
			return code, ended
		case pid == child && status.Signaled():
			code, ended = 128+int(status.Signal()), true
		case pid == child:
			code, ended = status.ExitStatus(), true
		}
	}
}
