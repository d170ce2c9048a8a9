package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/internal/journal/journaltest"
	"github.com/delegate-io/dlite/manager/sqlite"
)

func opener(tb testing.TB, path string) journaltest.Opener {
	return func() (journal.Log, error) { return sqlite.Open(tb.Context(), path, sqlite.Config{}) }
}

// Rule Q7.
func TestLog(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, func(tb testing.TB) journaltest.Opener {
		return opener(tb, filepath.Join(tb.TempDir(), "with space # and ?.db"))
	})
}

func TestOneProcessOpensTheDatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log.db")
	j := journaltest.Open(t, opener(t, path))
	_, err := sqlite.Open(t.Context(), path, sqlite.Config{})
	require.ErrorContains(t, err, "the database is in use")
	j.Add(t, "a")
	require.NoError(t, j.Close())
	assert.Equal(t, []string{"a"}, journaltest.Open(t, opener(t, path)).IDs())
}

// Only the owner may read the database and the other files of SQLite.
func TestOnlyTheOwnerReadsIt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("files have no mode here")
	}
	dir := t.TempDir()
	j := journaltest.Open(t, opener(t, filepath.Join(dir, "log.db")))
	j.Add(t, "a")
	require.NoError(t, j.Compact(t.Context()))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, files, 4)
	for _, f := range files {
		info, err := f.Info()
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), f.Name())
	}
}

// Rule S5: commands and the state are not readable on the disk.
func TestSecretsAreNotOnTheDisk(t *testing.T) {
	t.Parallel()
	const secret = "test secret"
	for _, unsealed := range []bool{false, true} {
		dir := t.TempDir()
		j := journaltest.Open(t, opener(t, filepath.Join(dir, "log.db")), func(c *journal.Config[journaltest.Command]) {
			if unsealed {
				c.Keys, c.Unsealed = nil, true
			}
		})
		j.Add(t, secret+"1")
		require.NoError(t, j.Compact(t.Context()))
		j.Add(t, secret+"2")
		require.NoError(t, j.Close())
		found := false
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range files {
			b, err := os.ReadFile(filepath.Join(dir, f.Name()))
			require.NoError(t, err)
			found = found || bytes.Contains(b, []byte(secret))
		}
		assert.Equal(t, unsealed, found)
	}
}

func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, file, second, restored := filepath.Join(dir, "log.db"), filepath.Join(dir, "backup"), filepath.Join(dir, "second"), filepath.Join(dir, "restored.db")
	log, err := sqlite.Open(t.Context(), path, sqlite.Config{})
	require.NoError(t, err)
	j := journaltest.Open(t, func() (journal.Log, error) { return log, nil })
	hammer := journaltest.Strike(t, "x", 8, j)
	hammer.Await(t, 50)
	before := hammer.Acknowledged()
	require.NoError(t, log.Backup(t.Context(), file), "while it is in use")
	hammer.Await(t, 50)
	require.NoError(t, j.Compact(t.Context()))
	require.NoError(t, sqlite.Backup(t.Context(), path, second), "while another one uses it")
	hammer.Stop()
	hammer.NothingWrong(t)

	require.ErrorIs(t, log.Backup(t.Context(), file), fs.ErrExist)
	require.ErrorIs(t, sqlite.Restore(t.Context(), file, path), fs.ErrExist)
	require.NoError(t, sqlite.Check(t.Context(), path))
	require.NoError(t, sqlite.Check(t.Context(), file))
	for _, f := range []string{file, second} {
		require.NoError(t, sqlite.Restore(t.Context(), f, restored))
		old := journaltest.Open(t, opener(t, restored))
		old.Has(t, before)
		old.Add(t, "on from there")
		require.NoError(t, old.Close())
		for _, f := range []string{restored, restored + "-wal"} {
			require.NoError(t, os.RemoveAll(f))
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.part-*"))
	require.NoError(t, err)
	assert.Empty(t, left)

	require.NoError(t, os.WriteFile(restored+"-wal", nil, 0o600))
	require.ErrorIs(t, sqlite.Restore(t.Context(), file, restored), fs.ErrExist, "of a database that was removed in part")
	require.ErrorIs(t, sqlite.Restore(t.Context(), filepath.Join(dir, "none"), restored), fs.ErrNotExist)
	require.ErrorIs(t, sqlite.Backup(t.Context(), filepath.Join(dir, "none"), restored), fs.ErrNotExist)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, log.Backup(ctx, filepath.Join(dir, "third")))
	assert.NoFileExists(t, filepath.Join(dir, "third"))
}

// If the disk is full, commands fail with that reason. Nothing is lost, and commands
// succeed again when there is space.
func TestCommandsFailWhileTheDiskIsFull(t *testing.T) {
	t.Parallel()
	log, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "log.db"), sqlite.Config{})
	require.NoError(t, err)
	j := journaltest.Open(t, func() (journal.Log, error) { return log, nil })
	require.NoError(t, log.Limit(t.Context(), 200<<10))
	acked := map[string]int{}
	full := func() {
		for i := len(acked); ; i++ {
			id := "a" + strconv.Itoa(i)
			r, err := j.Do(t.Context(), journaltest.Command{ID: id, Pad: make([]byte, 20<<10)})
			if err != nil {
				require.ErrorIs(t, err, journal.ErrUnavailable)
				require.ErrorContains(t, err, "full and nothing was written: free some space")
				return
			}
			acked[id] = r.(journaltest.Receipt).Place
		}
	}
	full()
	require.NoError(t, log.Limit(t.Context(), 400<<10))
	j.Add(t, "again")
	full()
	require.NoError(t, log.Limit(t.Context(), 1<<30))
	require.NoError(t, j.Compact(t.Context()))
	j.Has(t, acked)
	saved := j.Saved()
	require.NoError(t, j.Close())
	assert.Equal(t, saved, journaltest.Open(t, opener(t, log.Path())).Saved())
}

func TestUpgrades(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log.db")
	j := journaltest.Open(t, opener(t, path))
	j.Add(t, "a")
	require.NoError(t, j.Close())

	// A failed upgrade changes nothing, and the old state is readable.
	later := func(statement string) journaltest.Opener {
		return func() (journal.Log, error) { return sqlite.OpenVersion(t.Context(), path, statement) }
	}
	readOnly := func(open journaltest.Opener, why string) {
		j := journaltest.Open(t, open, func(c *journal.Config[journaltest.Command]) {
			c.Keys = append(c.Keys, make([]byte, 32)) // a read-only log cannot add a key
		})
		assert.Equal(t, "a", j.IDs()[0])
		_, err := j.Do(t.Context(), journaltest.Command{ID: "b"})
		require.ErrorIs(t, err, journal.ErrReadOnly)
		require.ErrorContains(t, err, why)
		require.ErrorIs(t, j.Compact(t.Context()), journal.ErrReadOnly)
		require.ErrorIs(t, j.Ping(t.Context()), journal.ErrReadOnly)
		require.NoError(t, j.Sync(t.Context()))
		require.NoError(t, j.Close())
	}
	readOnly(later(`NONSENSE`), "could not be upgraded from version 1 to 2")
	assert.FileExists(t, path+".v1.bak")
	j = journaltest.Open(t, opener(t, path))
	assert.Equal(t, 1, j.Add(t, "b").Place)
	require.NoError(t, j.Close())

	// The second open needs no upgrade.
	for range 2 {
		j = journaltest.Open(t, later(`CREATE TABLE more (x)`))
		assert.Equal(t, []string{"a", "b"}, j.IDs())
		require.NoError(t, j.Close())
	}
	require.NoError(t, sqlite.Check(t.Context(), path+".v1.bak"))
	bak := journaltest.Open(t, opener(t, path+".v1.bak"))
	assert.Equal(t, []string{"a", "b"}, bak.IDs())
	require.NoError(t, bak.Close())
	readOnly(opener(t, path), "is of version 2, this program knows version 1: use a newer program")
}

func TestForeignFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, make([]byte, 5000), 0o600))
	other := filepath.Join(dir, "other.db")
	db, err := sql.Open("sqlite", other)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `CREATE TABLE t (x)`)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	const foreign = "the file is not a journal's database"
	for _, f := range []string{text, other} {
		before, err := os.ReadFile(f)
		require.NoError(t, err)
		_, err = sqlite.Open(t.Context(), f, sqlite.Config{})
		require.ErrorContains(t, err, foreign, f)
		require.ErrorContains(t, sqlite.Check(t.Context(), f), foreign, f)
		require.ErrorContains(t, sqlite.Restore(t.Context(), f, filepath.Join(dir, "new")), foreign, f)
		after, err := os.ReadFile(f)
		require.NoError(t, err)
		assert.Equal(t, len(before), len(after), f)
	}
	_, err = sqlite.Open(t.Context(), filepath.Join(dir, "no", "folder.db"), sqlite.Config{})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// Open refuses a truncated or overwritten file with instructions. It never loads a
// wrong state.
func TestTornFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "log.db")
	j := journaltest.Open(t, opener(t, path))
	for i := range 40 {
		_, err := j.Do(t.Context(), journaltest.Command{ID: strconv.Itoa(i), Pad: make([]byte, 5<<10)})
		require.NoError(t, err)
	}
	require.NoError(t, j.Compact(t.Context()))
	for i := range 40 {
		_, err := j.Do(t.Context(), journaltest.Command{ID: "b" + strconv.Itoa(i), Pad: make([]byte, 5<<10)})
		require.NoError(t, err)
	}
	saved := j.Saved()
	require.NoError(t, j.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	refused := 0
	for at := 0; at < len(whole); at += 4096 {
		for name, torn := range map[string][]byte{
			"cut off":     append([]byte{}, whole[:at]...),
			"overwritten": append(append(append([]byte{}, whole[:at]...), make([]byte, 4096)...), whole[min(at+4096, len(whole)):]...),
		} {
			file := filepath.Join(dir, strconv.Itoa(at)+name)
			require.NoError(t, os.WriteFile(file, torn, 0o600))
			got, err := stateOf(t, file)
			if err != nil {
				refused++
				continue
			}
			// A change in free pages has no effect, and an empty file is a new
			// database.
			if at > 0 || name != "cut off" {
				assert.Equal(t, saved, got, "%s at %d", name, at)
			}
		}
	}
	assert.Greater(t, refused, len(whole)/4096)
}

func stateOf(t *testing.T, file string) (string, error) {
	log, err := sqlite.Open(t.Context(), file, sqlite.Config{})
	if err != nil {
		return "", err
	}
	ledger := journaltest.NewLedger()
	j, err := journal.Open(t.Context(), journaltest.Config(log), ledger)
	if err != nil {
		return "", err
	}
	return ledger.Saved(), j.Close()
}
