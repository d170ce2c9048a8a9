//go:build unix

package cgi

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Another process may remove a waiting directory and create something in its place. No
// call gets that.
func TestAFolderThatWasReplacedIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	for what, replace := range map[string]func(dir string) error{
		"nothing":         os.Remove,
		"a link":          func(dir string) error { return relink(dir, t.TempDir()) },
		"a file in it":    func(dir string) error { return os.WriteFile(filepath.Join(dir, "x"), nil, 0o600) },
		"open for others": func(dir string) error { return os.Chmod(dir, 0o777) },
		"of another user": func(dir string) error {
			if os.Geteuid() != 0 || runtime.GOOS != "linux" {
				return os.Remove(dir) // only root can change the owner, and only Linux checks it
			}
			return os.Chown(dir, 12345, 12345)
		},
	} {
		var s scratch
		dir, err := s.take()
		require.NoError(t, err)
		s.give(dir)
		again, err := s.take()
		require.NoError(t, err)
		require.Equal(t, dir, again, "an unchanged directory is reused")
		s.give(dir)
		require.NoError(t, replace(dir), what)
		again, err = s.take()
		require.NoError(t, err)
		require.NotEqual(t, dir, again, what)
		require.NoError(t, os.RemoveAll(dir))
		s.give(again)
		s.close()
		require.NoDirExists(t, again)
	}
}

func relink(dir, to string) error {
	if err := os.Remove(dir); err != nil {
		return err
	}
	return os.Symlink(to, dir)
}
