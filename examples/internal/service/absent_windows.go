package service

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/windows"
)

// isAbsent reports whether a socket could not be reached because no process listens there.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, windows.WSAECONNREFUSED) || errors.Is(err, windows.WSAENETUNREACH)
}
