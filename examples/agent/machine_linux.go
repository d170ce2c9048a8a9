package main

import (
	"encoding/binary"
	"errors"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func setClock(t time.Time) error {
	tv := unix.NsecToTimeval(t.UnixNano())
	return unix.Settimeofday(&tv)
}

// rndReseed is RNDRESEEDCRNG of <linux/random.h>.
const rndReseed = 0x5207

// seedRandom mixes seed into the kernel's random state, credits it as entropy, and makes
// the generator reseed at once. Machines of one snapshot have the same state before.
func seedRandom(seed []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Write(seed); err != nil {
		return err
	}
	// struct rand_pool_info: bits, bytes, and the bytes as whole words.
	words := make([]byte, (len(seed)+3)/4*4)
	copy(words, seed)
	info := binary.NativeEndian.AppendUint32(nil, uint32(8*len(seed))) //nolint:gosec // a line's length at most
	info = binary.NativeEndian.AppendUint32(info, uint32(len(words)))  //nolint:gosec // likewise
	info = append(info, words...)
	defer clear(info)
	if err := ioctlBytes(f, unix.RNDADDENTROPY, info); err != nil {
		return err
	}
	return unix.IoctlSetInt(int(f.Fd()), rndReseed, 0)
}

// makeRaw turns off the line discipline of a serial line: the echo, and the bound on the
// length of a line. It does nothing to other ports.
func makeRaw(port *os.File) error {
	raw, err := port.SyscallConn()
	if err != nil {
		return err
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		t, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		if err != nil {
			return // no terminal
		}
		t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
		t.Oflag &^= unix.OPOST
		t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
		t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
		setErr = unix.IoctlSetTermios(int(fd), unix.TCSETS, t)
	})
	return errors.Join(err, setErr)
}

// ioctlBytes makes an ioctl whose argument is a structure.
func ioctlBytes(f *os.File, req uint, arg []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(req), uintptr(unsafe.Pointer(&arg[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
