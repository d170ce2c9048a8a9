package supervisor

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// listener accepts the connections of drivers. It does without package net, whose imports would let
// hundreds of packages initialize before this one.
type listener struct{ socket *os.File }

// listen creates a socket in a directory.
func listen(dir string) (*listener, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	l := &listener{socket: os.NewFile(uintptr(fd), "listener")}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: SocketPath(d)}); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), l.socket.Close())
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, errors.Join(os.NewSyscallError("listen", err), l.socket.Close())
	}
	return l, nil
}

// SocketPath returns the path of the socket in the open directory of a supervisor. The real path may be
// longer than the address of a socket.
func SocketPath(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), SocketName) }

// SocketName is the name of the socket in the directory of a supervisor.
const SocketName = "socket"

// accept waits for a connection.
func (l *listener) accept() (*os.File, error) {
	raw, err := l.socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	for {
		var fd int
		var failed error
		err := raw.Read(func(s uintptr) bool {
			fd, _, failed = unix.Accept4(int(s), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return !errors.Is(failed, unix.EAGAIN)
		})
		switch {
		case err != nil:
			return nil, err
		case errors.Is(failed, unix.EINTR) || errors.Is(failed, unix.ECONNABORTED):
		case failed != nil:
			return nil, os.NewSyscallError("accept", failed)
		default:
			return os.NewFile(uintptr(fd), "driver"), nil
		}
	}
}

// isDriver rejects connections of other users and of processes in this PID namespace: a step could ask
// for the output of another step.
func isDriver(conn *os.File) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	ok := false
	err = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		ok = err == nil && int(peer.Uid) == os.Getuid() && peer.Pid == 0 // a process outside has no id here
	})
	return err == nil && ok
}
