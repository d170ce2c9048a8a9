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

// oomKills returns the number of processes of this container that the kernel killed because
// of the memory limit. The number comes from the control group.
func oomKills() int { return oomKillsOf("/sys/fs/cgroup") }

// oomKillsOf reads the number below root, where control groups are mounted: from version 2,
// or from the memory hierarchy of version 1.
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

// writable reports whether this process may create files in dir.
func writable(dir string) bool { return dir != "" && unix.Access(dir, unix.W_OK|unix.X_OK) == nil }

// killRest kills all processes of the container except this program, which is the first
// process of the container. Outside a container it does nothing.
func killRest() {
	first, err := os.Readlink("/proc/1/exe")
	if err != nil {
		return
	}
	if self, err := os.Executable(); err != nil || self != first || os.Getppid() != 1 {
		return
	}
	_ = unix.Kill(-1, unix.SIGKILL) // excludes the first process and this one
}
