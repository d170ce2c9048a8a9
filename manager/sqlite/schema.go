package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// applicationID is the application id in the header of the file: "dlit".
const applicationID = 0x646c6974

// migration upgrades a database by one version.
type migration func(context.Context, *sql.Tx) error

// migrations contains one migration for each version. A released migration must never
// change.
var migrations = []migration{statements(
	`CREATE TABLE header (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, body BLOB NOT NULL) STRICT`,
	`CREATE TABLE entries (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, origin TEXT NOT NULL, counter INTEGER NOT NULL,
		rules INTEGER NOT NULL, body BLOB NOT NULL) STRICT`,
	`CREATE TABLE snapshot (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL,
		saved INTEGER NOT NULL, rules INTEGER NOT NULL, size INTEGER NOT NULL, chunks INTEGER NOT NULL) STRICT`,
	`CREATE TABLE chunks (id INTEGER PRIMARY KEY, snapshot TEXT NOT NULL, n INTEGER NOT NULL, body BLOB NOT NULL,
		UNIQUE (snapshot, n)) STRICT`,
)}

func statements(all ...string) migration {
	return func(ctx context.Context, tx *sql.Tx) error {
		for _, s := range all {
			if _, err := tx.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
}

// versionOf returns the version of a database, 0 if it is empty.
func versionOf(ctx context.Context, db *sql.DB) (int, error) {
	var version, application, tables int
	err := db.QueryRowContext(ctx, `SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema)
		FROM pragma_user_version, pragma_application_id`).Scan(&version, &application, &tables)
	if err != nil {
		return 0, err
	}
	if application != applicationID && (application != 0 || version != 0 || tables != 0) {
		return 0, fmt.Errorf("%w: it has %d tables of another program", errForeign, tables)
	}
	return version, nil
}

// migrate upgrades a database to the current version. readOnly is the reason if the
// database can only be read. err is set if it cannot be read either.
func migrate(ctx context.Context, db *sql.DB, path string, steps []migration) (readOnly, err error) {
	version, err := versionOf(ctx, db)
	if err != nil {
		return nil, err
	}
	switch {
	case version == len(steps):
		return nil, nil //nolint:nilnil // there is no reason, and no error
	case version > len(steps):
		return fmt.Errorf("%w: its database is of version %d, this program knows version %d: use a newer program",
			journal.ErrReadOnly, version, len(steps)), nil
	case version == 0:
		return nil, upgrade(ctx, db, steps, version)
	}
	copied := fmt.Sprintf("%s.v%d.bak", path, version)
	err = backup(ctx, db, copied, true)
	if err == nil {
		err = upgrade(ctx, db, steps, version)
	}
	if err != nil {
		return fmt.Errorf("%w: it could not be upgraded from version %d to %d and has not changed: %w",
			journal.ErrReadOnly, version, len(steps), explain(err)), nil
	}
	return nil, nil //nolint:nilnil // there is no reason, and no error
}

// upgrade applies all steps or none.
func upgrade(ctx context.Context, db *sql.DB, steps []migration, version int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, step := range steps[version:] {
		if err := step(ctx, tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	for _, pragma := range []string{fmt.Sprint("user_version = ", len(steps)), fmt.Sprint("application_id = ", applicationID)} {
		if _, err := tx.ExecContext(ctx, "PRAGMA "+pragma); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

// Check returns nil if the file is the database of a journal and SQLite finds no
// damage. The database may be in use.
func Check(ctx context.Context, path string) error {
	err := check(ctx, path)
	if err != nil {
		return fmt.Errorf("checking the database %s: %w", path, err)
	}
	return nil
}

func check(ctx context.Context, path string) (err error) {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	db, err := openDB(path, 1, "mode=ro")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	version, err := versionOf(ctx, db)
	if err != nil {
		return explain(err)
	}
	if version == 0 {
		return fmt.Errorf("%w: it is empty", errForeign)
	}
	var result string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&result); err != nil {
		return explain(err)
	}
	if result != "ok" {
		return fmt.Errorf("%w: restore a backup: %s", journal.ErrDamaged, result)
	}
	return nil
}
