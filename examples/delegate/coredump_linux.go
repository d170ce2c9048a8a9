package main

import (
	"errors"

	"golang.org/x/sys/unix"
)

// keepMemory keeps the memory of this process, in which there are secrets, from
// the disk and from others, also when it crashes (SPEC S5): it writes no core dump,
// whatever the limits say and whoever collects them, and no process of the same
// user can read it. Steps, which are programs of their own, write no core dumps
// either, unless they raise the limit.
func keepMemory() error {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_CORE, &limit)
	if err == nil {
		limit.Cur = 0
		err = unix.Setrlimit(unix.RLIMIT_CORE, &limit)
	}
	return errors.Join(err, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}
