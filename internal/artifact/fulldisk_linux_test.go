package artifact

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/delegate-io/dlite/internal/testbed"
)

func TestAFullDiskIsClearedUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32k"); err != nil {
		testbed.Unavailable(t, "root", "no small disk can be made: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	s := newStore(t, serveBytes(program))
	c := impatient(t)
	c.dir = dir
	_, err := c.Fetch(t.Context(), s.executable(program), "", quiet)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.EqualValues(t, 1, s.calls.Load(), "another attempt would not help")
	requireNoHit(t, c)
}
