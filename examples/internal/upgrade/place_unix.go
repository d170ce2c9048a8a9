//go:build unix

package upgrade

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// checkOwner refuses to work as root in a directory of another user: that user could replace the files that root
// starts.
func (p place) checkOwner() error {
	info, err := os.Stat(p.dir())
	if err != nil {
		return err
	}
	of, ok := info.Sys().(*syscall.Stat_t)
	if ok && os.Geteuid() == 0 && of.Uid != 0 {
		return fmt.Errorf("the program is in %s, which belongs to the user %d: run the command as that user (sudo -u '#%d')", p.dir(), of.Uid, of.Uid)
	}
	return nil
}

// lockUpgrades locks the upgrades of the program against other processes. It fails with ErrBusy.
func (p place) lockUpgrades() (unlock func(), err error) {
	f, err := os.OpenFile(p.lock(), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, p.explain(err)
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrBusy
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// writable reports whether this process may replace files in the directory of the program.
func (p place) writable() bool { return unix.Access(p.dir(), unix.W_OK|unix.X_OK) == nil }
