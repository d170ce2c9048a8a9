package podagent

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// guard applies the names again whenever another process has written the file, until ctx
// ends.
func (n *names) guard(ctx context.Context, log io.Writer) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		_, _ = fmt.Fprintf(log, "watch %s: %v\n", n.file, err)
		return
	}
	changes := os.NewFile(uintptr(fd), "inotify")
	defer func() { _ = changes.Close() }()
	// Wait for the close: lines that are appended during the write would be
	// overwritten.
	if _, err := unix.InotifyAddWatch(fd, n.file, unix.IN_CLOSE_WRITE); err != nil {
		_, _ = fmt.Fprintf(log, "watch %s: %v\n", n.file, err)
		return
	}
	defer context.AfterFunc(ctx, func() { _ = changes.Close() })()
	buf := make([]byte, 4096)
	for {
		if _, err := changes.Read(buf); err != nil {
			return
		}
		if err := n.apply(); err != nil {
			_, _ = fmt.Fprintln(log, err)
		}
	}
}
