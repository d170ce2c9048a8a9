package atomicfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// writers are the two functions that write a file.
var writers = map[string]func(string, []byte) error{"WriteFile": WriteFile, "ReplaceFile": ReplaceFile}

func TestAFileHasItsNewContentAlone(t *testing.T) {
	t.Parallel()
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			// The temporary file of a process that was killed.
			require.NoError(t, os.WriteFile(path+Unfinished, []byte("much more than what comes"), 0o600))
			for _, content := range []string{"first, and long", "second", ""} {
				require.NoError(t, write(path, []byte(content)))
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, content, string(b))
			}
			entries, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			require.Len(t, entries, 1, "the unfinished one is gone")
		})
	}
}

// A failed write leaves the old content, and no temporary file.
func TestAFailedWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, write := range writers {
		path := filepath.Join(t.TempDir(), "file")
		require.ErrorIs(t, write(filepath.Join(path, "below"), nil), fs.ErrNotExist, name)
		// A directory with content cannot be replaced by a file.
		require.NoError(t, os.MkdirAll(filepath.Join(path, "sub"), 0o700))
		require.Error(t, write(path, []byte("x")), name)
		entries, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Len(t, entries, 1, name)
		require.DirExists(t, filepath.Join(path, "sub"), name)
	}
}
