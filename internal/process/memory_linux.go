package process

import (
	"errors"
	"sync"

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

// WithDumps runs f while other processes of the user may read the memory of this process, and its files
// in /proc belong to the user. Without that, an unprivileged process with protected memory cannot create
// a user namespace.
func WithDumps(f func() error) error {
	dumps.Lock()
	defer dumps.Unlock()
	before, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil || before != 0 {
		return errors.Join(err, f())
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return err
	}
	return errors.Join(f(), unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// dumps lets one call of WithDumps run at a time.
var dumps sync.Mutex

// dropAmbient clears the ambient capabilities of this thread. Programs that it starts have none.
func dropAmbient() { _ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) }
