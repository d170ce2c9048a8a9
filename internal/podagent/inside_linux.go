package podagent

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// oomKills counts the processes of this container that were killed for want of
// memory, as its control group tells it.
func oomKills() int { return oomKillsOf("/sys/fs/cgroup") }

// oomKillsOf looks where control groups are mounted: in the one hierarchy of version
// 2, or in that of memory of version 1.
func oomKillsOf(root string) int {
	total := 0
	for _, file := range []string{"memory.events", "memory/memory.oom_control"} {
		b, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue
		}
		for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
			if name, count, ok := strings.Cut(s.Text(), " "); ok && name == "oom_kill" {
				n, _ := strconv.Atoi(count)
				total += n
			}
		}
	}
	return total
}

// writable reports whether this process may make files in dir.
func writable(dir string) bool { return dir != "" && unix.Access(dir, unix.W_OK|unix.X_OK) == nil }

// killRest kills everything in the container but this program, whose first process
// the container's is too. Elsewhere it does nothing.
func killRest() {
	first, err := os.Readlink("/proc/1/exe")
	if err != nil {
		return
	}
	if self, err := os.Executable(); err != nil || self != first || os.Getppid() != 1 {
		return
	}
	_ = unix.Kill(-1, unix.SIGKILL) // neither the first process nor this one
}
