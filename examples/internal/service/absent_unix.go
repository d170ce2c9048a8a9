//go:build !windows

package service

import (
	"errors"
	"io/fs"
	"syscall"
)

// isAbsent reports whether a socket could not be reached because no process listens there.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}
