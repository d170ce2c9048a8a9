package transaction

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const defaultMemory = "/dev/shm"

// inMemory reports whether a directory is on a file system in memory.
func inMemory(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && s.Type == unix.TMPFS_MAGIC
}

// makePrivate creates a directory in one that all users may write to. It returns
// an error if another user has created it: its content would be trusted.
func makePrivate(dir string) error {
	if err := os.Mkdir(dir, 0o700); err == nil || !os.IsExist(err) {
		return err
	}
	var s unix.Stat_t
	if err := unix.Lstat(dir, &s); err != nil {
		return fmt.Errorf("checking %s: %w", dir, err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR || s.Mode&0o777 != 0o700 || int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a directory that only this user can access", dir)
	}
	return nil
}
