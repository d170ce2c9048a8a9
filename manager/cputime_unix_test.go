//go:build unix

package manager_test

import (
	"syscall"
	"time"
)

// cpuTime is what the process has used of the processors, the system's work for it
// included.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
