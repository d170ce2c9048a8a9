//go:build unix

package source

import (
	"syscall"
	"time"
)

// cpuTime returns the CPU time of the process, in user and system mode.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
