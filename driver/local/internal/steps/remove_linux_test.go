package steps

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Root can remove anything, so the test runs as another user, on a thread that ends with the
// goroutine.
func TestRemoveTreeRemovesDirectoriesWithoutPermissions(t *testing.T) {
	t.Parallel()
	base, err := os.MkdirTemp("", "dlite-test-") // other users can pass through it, unlike t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	require.NoError(t, os.Chmod(base, 0o777))
	done := make(chan []error)
	go func() {
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			_ = unix.Setfsuid(65534)
		}
		dir := filepath.Join(base, "d")
		done <- []error{
			os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o700),
			os.WriteFile(filepath.Join(dir, "a", "b", "f"), nil, 0o400),
			os.Symlink("/", filepath.Join(dir, "a", "b", "link")),
			os.Chmod(filepath.Join(dir, "a", "b", "c"), 0),
			os.Chmod(filepath.Join(dir, "a", "b"), 0o500),
			os.Chmod(filepath.Join(dir, "a"), 0),
			os.Chmod(dir, 0),
			RemoveTree(dir),
			RemoveTree(dir), // it is gone already
		}
	}()
	for _, err := range <-done {
		require.NoError(t, err)
	}
	require.NoDirExists(t, filepath.Join(base, "d"))
}

// A step may have replaced the directory with a link.
func TestRemoveTreeFollowsNoLink(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	other, link := filepath.Join(base, "other", "empty"), filepath.Join(base, "link")
	require.NoError(t, os.MkdirAll(other, 0o755))
	require.NoError(t, os.Symlink(filepath.Dir(other), link))
	require.NoError(t, RemoveTree(link))
	require.NoFileExists(t, link)
	require.DirExists(t, other)
}
