package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/internal/journal/journaltest"
)

// TestFullDisk is TestCommandsFailWhileTheDiskIsFull with a file system that is really full.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=2m"); errors.Is(err, syscall.EPERM) {
		testbed.Unavailable(t, "root", "a small file system cannot be mounted: %v", err)
	} else {
		require.NoError(t, err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	path, ballast := filepath.Join(dir, "log.db"), filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 1<<20), 0o600))
	j := journaltest.Open(t, opener(t, path))
	acked := map[string]int{}
	fill := func(prefix string) {
		for i := 0; ; i++ {
			id := prefix + strconv.Itoa(i)
			r, err := j.Do(t.Context(), journaltest.Command{ID: id, Pad: make([]byte, 10<<10)})
			if err != nil {
				require.ErrorIs(t, err, journal.ErrUnavailable)
				require.ErrorContains(t, err, "full")
				return
			}
			acked[id] = r.(journaltest.Receipt).Place
		}
	}
	fill("a")
	require.NoError(t, os.Remove(ballast))
	fill("b")
	j.Has(t, acked)
	saved := j.Saved()
	require.NoError(t, j.Close())
	require.Equal(t, saved, journaltest.Open(t, opener(t, path)).Saved())
}
