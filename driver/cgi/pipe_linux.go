package cgi

import (
	"os"

	"golang.org/x/sys/unix"
)

// The pipes of os.Pipe are made for waiting in Go, at both ends, and made otherwise
// again when a process gets one of them: a good part of what a small program takes.

// readingPipe gives a pipe of which we read.
func readingPipe() (ours, theirs *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	// A program need not know of pipes that do not wait.
	if _, err := unix.FcntlInt(uintptr(p[1]), unix.F_SETFL, 0); err != nil {
		_ = unix.Close(p[0])
		_ = unix.Close(p[1])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(p[0]), "|0"), os.NewFile(uintptr(p[1]), "|1"), nil
}

// filledPipe gives the end of a pipe that b, which is small, can be read from.
func filledPipe(b []byte) (*os.File, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	_, _ = unix.Write(p[1], b) // it has room, and a reader
	_ = unix.Close(p[1])
	return os.NewFile(uintptr(p[0]), "|0"), nil
}
