package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// writableControlGroup returns the control group of this process if the process may create groups below it. It
// prefers version 2 and falls back to the freezer of version 1.
func writableControlGroup() (string, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	err = errors.New("neither cgroup v2 nor the freezer of v1 is mounted")
	for line := range strings.Lines(string(own)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var dirs []string
		switch {
		case parts[1] == "":
			dirs = []string{filepath.Join("/sys/fs/cgroup", parts[2]), filepath.Join("/sys/fs/cgroup/unified", parts[2])}
		case strings.Contains(","+parts[1]+",", ",freezer,"):
			dirs = []string{filepath.Join("/sys/fs/cgroup/freezer", parts[2]), "/sys/fs/cgroup/freezer"}
		}
		for _, dir := range dirs {
			if _, statErr := os.Stat(filepath.Join(dir, "cgroup.procs")); statErr != nil {
				continue
			}
			if err = unix.Access(dir, unix.W_OK|unix.X_OK); err == nil {
				return dir, nil
			}
		}
	}
	return "", err
}
