package cgi

import (
	"os"

	"golang.org/x/sys/unix"
)

// os.Pipe makes both ends non-blocking, and os/exec makes one of them blocking again for
// the process. This is a large part of the cost of a small program, so the pipes here are
// created directly.

// readingPipe returns a pipe from which the delegate reads.
func readingPipe() (ours, theirs *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	// A program may not cope with a non-blocking pipe.
	if _, err := unix.FcntlInt(uintptr(p[1]), unix.F_SETFL, 0); err != nil {
		_ = unix.Close(p[0])
		_ = unix.Close(p[1])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(p[0]), "|0"), os.NewFile(uintptr(p[1]), "|1"), nil
}

// filledPipe returns the read end of a pipe that contains b, which must fit into it.
func filledPipe(b []byte) (*os.File, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	_, _ = unix.Write(p[1], b) // b fits, and the read end is open
	_ = unix.Close(p[1])
	return os.NewFile(uintptr(p[0]), "|0"), nil
}
