//go:build unix

package steps

import (
	"io/fs"
	"syscall"
)

// sameOwner reports whether a and b have the same user and group.
func sameOwner(a, b fs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, ok2 := b.Sys().(*syscall.Stat_t)
	return ok && ok2 && x.Uid == y.Uid && x.Gid == y.Gid
}
