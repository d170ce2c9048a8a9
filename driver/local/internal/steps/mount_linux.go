package steps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mountMemory mounts a memory file system of size bytes on dir.
func mountMemory(dir string, size int64) error {
	err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=0777,size=%d", size))
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	return nil
}

// isMount reports whether a file system is mounted on dir.
func isMount(dir string) (bool, error) {
	var here, above unix.Stat_t
	if err := unix.Lstat(dir, &here); err != nil {
		return false, &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if err := unix.Lstat(filepath.Dir(dir), &above); err != nil {
		return false, &os.PathError{Op: "lstat", Path: filepath.Dir(dir), Err: err}
	}
	return here.Dev != above.Dev, nil
}

// unmount undoes mountMemory. It succeeds if nothing is mounted on dir. A process that still uses the
// file system keeps it until the process ends.
func unmount(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if mounted, statErr := isMount(dir); statErr == nil && !mounted {
		return nil // the error is that this process may not mount
	}
	return &os.PathError{Op: "unmount", Path: dir, Err: err}
}

// madeMark is an attribute that only root can set.
const madeMark = "trusted.dlite.volume"

// markMade marks the directory of a host volume that root created for steps. Steps with users of their own
// may write to it.
func markMade(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	err := unix.Lsetxattr(dir, madeMark, []byte("1"), 0)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) {
		return nil // the file system has no such attributes, or this root may not set them
	}
	return err
}

// IsMade reports whether a directory was created for a host volume by root.
func IsMade(dir string) bool {
	n, err := unix.Lgetxattr(dir, madeMark, make([]byte, 1))
	return err == nil && n == 1
}
