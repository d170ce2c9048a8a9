//go:build unix

package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Rule S5: the content may include secrets.
func TestOnlyTheOwnerCanReadAFile(t *testing.T) {
	t.Parallel()
	for name, write := range writers {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, write(path, nil))
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077, name)
	}
}

// A reader during a write finds the old or the new content, and never a part.
func TestReadersFindTheOldContentOrTheNew(t *testing.T) {
	t.Parallel()
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			contents := [][]byte{bytes.Repeat([]byte("a"), 1<<16), bytes.Repeat([]byte("b"), 1<<16)}
			require.NoError(t, write(path, contents[0]))
			done := make(chan error, 1)
			go func() {
				var err error
				for i := range 200 {
					err = errors.Join(err, write(path, contents[i%2]))
				}
				done <- err
			}()
			for {
				select {
				case err := <-done:
					require.NoError(t, err)
					return
				default:
				}
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				if !bytes.Equal(b, contents[0]) && !bytes.Equal(b, contents[1]) {
					require.Fail(t, "half a content", "%d bytes", len(b))
				}
			}
		})
	}
}

func TestSyncDirReportsAFolderThatIsNotThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, SyncDir(dir))
	require.ErrorIs(t, SyncDir(filepath.Join(dir, "none")), fs.ErrNotExist)
}
