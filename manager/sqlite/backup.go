package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/delegate-io/dlite/internal/atomicfile"
)

// Backup writes a copy of the database while it is in use. The copy contains all
// entries that were acknowledged before the call, and the wrapped form of the keys that
// opens them. The file must not exist.
func (l *Log) Backup(ctx context.Context, file string) error {
	return Backup(ctx, l.path, file)
}

// Backup writes a copy of a database that this process or another one may use. The file
// must not exist.
func Backup(ctx context.Context, path, file string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing a backup: %w", explain(err))
		}
	}()
	if _, err := os.Stat(path); err != nil {
		return err
	}
	db, err := openDB(path, 1, "mode=ro")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := versionOf(ctx, db); err != nil {
		return err
	}
	return backup(ctx, db, file, false)
}

// backup writes a complete file or none, even if the process dies.
func backup(ctx context.Context, db *sql.DB, file string, replace bool) error {
	if !replace {
		if err := isFree(file); err != nil {
			return err
		}
	}
	part, err := temporary(file)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(part) }() // removes the file after a failure
	// VACUUM INTO accepts an empty file and keeps its mode.
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", part); err != nil {
		return err
	}
	return install(part, file)
}

// Restore installs a backup as a database. It fails if a database exists at path, or if
// the backup is damaged. A journal that opens the database continues with the state of
// the backup.
func Restore(ctx context.Context, backup, path string) error {
	if err := restore(ctx, backup, path); err != nil {
		return fmt.Errorf("restoring a backup: %w", err)
	}
	return nil
}

func restore(ctx context.Context, backup, path string) (err error) {
	if err := check(ctx, backup); err != nil {
		return err
	}
	for _, f := range []string{path, path + "-wal", path + "-shm", path + "-journal"} {
		if err := isFree(f); err != nil {
			return err
		}
	}
	part, err := temporary(path)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(part) }() // removes the file after a failure
	if err := copyFile(part, backup); err != nil {
		return err
	}
	return install(part, path)
}

func isFree(file string) error {
	_, err := os.Lstat(file)
	if err == nil {
		return fmt.Errorf("%s: %w: move it away first", file, fs.ErrExist)
	}
	return notNothing(err)
}

// temporary creates an empty file in the same folder.
func temporary(file string) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".part-*") // its mode is 0600
	if err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// install renames a complete file durably.
func install(part, file string) error {
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(part, file); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(file))
}
