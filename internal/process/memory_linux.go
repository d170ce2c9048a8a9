package process

import (
	"errors"

	"golang.org/x/sys/unix"
)

// KeepMemory keeps the memory of this process, in which there are secrets, from
// the disk and from others, also when it crashes (SPEC S5): it writes no core dump,
// whatever the limits say and whoever collects them, and no process of the same
// user can read it. Processes that it starts, which are programs of their own,
// write no core dumps either, unless they raise the limit. It does nothing but on
// Linux: elsewhere the system's settings say whether a crash leaves a core dump.
func KeepMemory() error {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_CORE, &limit)
	if err == nil {
		limit.Cur = 0
		err = unix.Setrlimit(unix.RLIMIT_CORE, &limit)
	}
	return errors.Join(err, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}
