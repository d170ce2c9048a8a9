package service

import (
	"net"

	"golang.org/x/sys/unix"
)

// isRoot reports whether the other end of a Unix socket belongs to a process of root.
func isRoot(c net.Conn) bool {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return false
	}
	root := false
	err = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		root = err == nil && peer.Uid == 0
	})
	return err == nil && root
}
