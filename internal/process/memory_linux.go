package process

import (
	"errors"

	"golang.org/x/sys/unix"
)

// ProtectMemory keeps the memory of this process, which holds secrets, off the disk and away from other
// processes (rule S5). The process writes no core dump, whatever the limits and the core pattern are, and
// no process of the same user can read its memory. Programs that it starts write no core dumps either,
// unless they raise the limit. Outside Linux it does nothing: the settings of the system apply.
func ProtectMemory() error {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_CORE, &limit)
	if err == nil {
		limit.Cur = 0
		err = unix.Setrlimit(unix.RLIMIT_CORE, &limit)
	}
	return errors.Join(err, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}
