package testbed

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// StageFolders creates the directories of a local driver: one on the disk, and one in memory
// if the system has such directories. Steps of other users can access them. They must be empty
// when tb ends.
func StageFolders(tb testing.TB) (work, memory string) {
	tb.Helper()
	parent := ""
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		parent = "/dev/shm"
	}
	return stageFolder(tb, ""), stageFolder(tb, parent)
}

func stageFolder(tb testing.TB, parent string) string {
	tb.Helper()
	dir, err := os.MkdirTemp(parent, "dlite-stages-")
	require.NoError(tb, err)
	require.NoError(tb, os.Chmod(dir, 0o711))
	tb.Cleanup(func() {
		left, err := os.ReadDir(dir)
		assert.NoError(tb, err)
		assert.NoError(tb, os.RemoveAll(dir))
		assert.Empty(tb, left, "left behind in %s", dir)
	})
	return dir
}

// FoldersOf returns the directories that local drivers have created for a transaction in dirs,
// which may be patterns.
func FoldersOf(tb testing.TB, transaction string, dirs ...string) []string {
	tb.Helper()
	sum := sha256.Sum256([]byte(transaction))
	var found []string
	for _, dir := range dirs {
		folders, err := filepath.Glob(filepath.Join(dir, "dlite-"+hex.EncodeToString(sum[:6])+"-*"))
		require.NoError(tb, err)
		found = append(found, folders...)
	}
	return found
}
