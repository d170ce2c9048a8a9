//go:build !linux

package cgi

import "os"

// readingPipe returns a pipe from which the delegate reads.
func readingPipe() (ours, theirs *os.File, err error) { return os.Pipe() }

// filledPipe returns the read end of a pipe that contains b, which must fit into it.
func filledPipe(b []byte) (*os.File, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, _ = ours.Write(b) // b fits, and the read end is open
	_ = ours.Close()
	return theirs, nil
}
