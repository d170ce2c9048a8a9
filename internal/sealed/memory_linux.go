package sealed

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// DefaultMemory is the directory for files in memory that every Linux system has.
const DefaultMemory = "/dev/shm"

// InMemory reports whether a directory is on a file system in memory.
func InMemory(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && s.Type == unix.TMPFS_MAGIC
}

// MakePrivate creates a directory in one that all users may write to. It returns
// an error if another user has created it: its content would be trusted.
func MakePrivate(dir string) error {
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
