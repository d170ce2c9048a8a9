package transaction

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const defaultMemory = "/dev/shm"

// inMemory says whether a folder is on a file system in memory.
func inMemory(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && s.Type == unix.TMPFS_MAGIC
}

// makePrivate makes a folder in one that everybody may write to. What somebody
// else has put there in its place is an error: what is in it would be believed.
func makePrivate(dir string) error {
	if err := os.Mkdir(dir, 0o700); err == nil || !os.IsExist(err) {
		return err
	}
	var s unix.Stat_t
	if err := unix.Lstat(dir, &s); err != nil {
		return fmt.Errorf("looking at %s: %w", dir, err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR || s.Mode&0o777 != 0o700 || int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this user alone", dir)
	}
	return nil
}
