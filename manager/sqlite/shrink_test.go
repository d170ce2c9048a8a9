package sqlite_test

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/sqlite"
)

// size returns the size of a database with its log.
func size(t *testing.T, file string) (total int64) {
	t.Helper()
	for _, f := range []string{file, file + "-wal"} {
		if info, err := os.Stat(f); err == nil {
			total += info.Size()
		}
	}
	return total
}

// fill writes entries of 16 MiB, and a saved state that replaces them.
func fill(t *testing.T, l *sqlite.Log, file string, from uint64) {
	t.Helper()
	var last journal.Entry
	for i := range uint64(16) {
		var err error
		last, err = l.Append(t.Context(), "", journal.Batch{Origin: "o", Counter: from + i, At: time.Unix(1, 0), Body: bytes.Repeat([]byte("x"), 1<<20)})
		require.NoError(t, err)
	}
	assert.Greater(t, size(t, file), int64(16<<20))
	require.NoError(t, l.PutChunk(t.Context(), "s", int(from), []byte("state"))) //nolint:gosec // small
	require.NoError(t, l.Commit(t.Context(), journal.Snapshot{ID: "s", Position: last.Position, At: last.At, Saved: last.At}))
}

// A saved state releases the space of the state that it replaces, also in a database that an older
// version created.
func TestTheDatabaseShrinks(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "db")
	l, err := sqlite.Open(t.Context(), file, sqlite.Config{})
	require.NoError(t, err)
	fill(t, l, file, 1)
	assert.Less(t, size(t, file), int64(1<<20))
	require.NoError(t, l.Close())

	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	for _, statement := range []string{"PRAGMA auto_vacuum = 0", "VACUUM"} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, db.Close())
	l, err = sqlite.Open(t.Context(), file, sqlite.Config{})
	require.NoError(t, err)
	fill(t, l, file, 100)
	assert.Less(t, size(t, file), int64(1<<20))
	require.NoError(t, l.Close())
}
