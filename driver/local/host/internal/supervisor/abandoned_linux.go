package supervisor

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watchAbandoned ends this process, and with it all steps, if no delegate can come back: a directory of the
// delegate was removed, and no driver was connected, for the whole limit.
func (s *supervisor) watchAbandoned(dirs []*os.File, limit time.Duration) {
	const looks = 10
	if len(dirs) == 0 || limit <= 0 {
		return
	}
	for seen := 0; seen < looks; {
		<-time.After(limit / looks)
		if seen++; s.drivers.Load() > 0 || !anyRemoved(dirs) {
			seen = 0
		}
	}
	os.Exit(0)
}

// openDirectories opens the paths that are directories. An open directory stays known when mounts
// hide its path.
func openDirectories(paths []string) []*os.File {
	var all []*os.File
	for _, path := range paths {
		if fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			all = append(all, os.NewFile(uintptr(fd), path))
		}
	}
	return all
}

// anyRemoved reports whether one of the directories has no name any more.
func anyRemoved(dirs []*os.File) bool {
	for _, dir := range dirs {
		var st unix.Stat_t
		if unix.Fstat(int(dir.Fd()), &st) == nil && st.Nlink == 0 {
			return true
		}
	}
	return false
}
