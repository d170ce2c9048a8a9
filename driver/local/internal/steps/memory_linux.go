package steps

import "golang.org/x/sys/unix"

// defaultMemoryDir returns /dev/shm if it is a memory file system that this process can write to.
func defaultMemoryDir() string {
	const shm = "/dev/shm"
	var fs unix.Statfs_t
	if unix.Statfs(shm, &fs) != nil || fs.Type != unix.TMPFS_MAGIC || unix.Access(shm, unix.W_OK|unix.X_OK) != nil {
		return ""
	}
	return shm
}
