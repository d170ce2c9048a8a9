//go:build unix

package steps

import (
	"os"

	"golang.org/x/sys/unix"
)

// removeEmpty removes empty directories in dir, unless dir is a link. Most directories of a transaction are
// empty, and os.RemoveAll makes seven system calls for each. It removes the remaining entries.
func removeEmpty(dir string) {
	const most = 1000 // bounds the list in memory
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), dir)
	defer func() { _ = f.Close() }()
	entries, _ := f.ReadDir(most)
	for _, e := range entries {
		if e.IsDir() {
			_ = unix.Unlinkat(fd, e.Name(), unix.AT_REMOVEDIR)
		}
	}
}
