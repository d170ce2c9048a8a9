package pagetest

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// becomeBrowser replaces this process by a browser that cannot see changes of the machine's networks. Chromium
// ends all requests at each change, and other tests make networks and containers all the time.
func becomeBrowser(path string) error {
	runtime.LockOSThread() // the filter belongs to the thread
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: skip, K: value}
	}
	answer := func(value uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value} }
	filter := []unix.SockFilter{
		load(0), // the number of the system call
		unless(unix.SYS_SOCKET, 3),
		load(16), // its first argument
		unless(unix.AF_NETLINK, 1),
		answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)),
		answer(unix.SECCOMP_RET_ALLOW),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil { //nolint:gosec // the kernel reads it here
		return fmt.Errorf("seccomp: %w", err)
	}
	return syscall.Exec(path, append([]string{path}, os.Args[1:]...), os.Environ())
}
