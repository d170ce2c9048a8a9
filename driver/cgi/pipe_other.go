//go:build !linux

package cgi

import "os"

// readingPipe gives a pipe of which we read.
func readingPipe() (ours, theirs *os.File, err error) { return os.Pipe() }

// filledPipe gives the end of a pipe that b, which is small, can be read from.
func filledPipe(b []byte) (*os.File, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, _ = ours.Write(b) // it has room, and a reader
	_ = ours.Close()
	return theirs, nil
}
