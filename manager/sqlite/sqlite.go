package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/rs/zerolog"
	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// Errors of Open, Check and Restore.
var (
	// errInUse means that another process uses the database.
	errInUse = errors.New("the database is in use")
	// errForeign means that the file is not a database of this package.
	errForeign = errors.New("the file is not a journal's database")
)

// Config configures [Open].
type Config struct {
	// Logger logs upgrades and read-only databases. The zero value logs nothing.
	Logger zerolog.Logger
}

// Log is a journal.Log in a database. It is safe for concurrent use.
type Log struct {
	path     string
	lock     *flock.Flock
	logger   zerolog.Logger
	readOnly error // the reason, nil if the log is writable

	read   *sql.DB
	write  *sql.DB // one connection; nil if the log is read-only
	insert *sql.Stmt

	mu     sync.Mutex // guards the following fields; held by Append
	end    journal.Position
	at     int64 // time of the last entry
	last   journal.Entry
	unsure bool // an append failed: the file may or may not contain its entry
}

// Open opens a database. It creates the database if necessary. Only one process may
// have it open as a log: Open locks the file path+".lock".
//
// Open upgrades a database of an older version, after it has copied the file. If the
// upgrade fails, or if the database has a newer version, Open opens it for reading.
// Append then fails with journal.ErrReadOnly, with the reason.
func Open(ctx context.Context, path string, cfg Config) (*Log, error) {
	l, err := open(ctx, path, cfg, migrations)
	if err != nil {
		return nil, fmt.Errorf("opening the database %s: %w", path, err)
	}
	return l, nil
}

func open(ctx context.Context, path string, cfg Config, steps []migration) (_ *Log, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	l := &Log{path: path, logger: cfg.Logger, lock: flock.New(path+".lock", flock.SetPermissions(0o600))}
	switch locked, err := l.lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("locking it: %w", err)
	case !locked:
		return nil, fmt.Errorf("%w: another process uses it; stop that process, or use Redis for several managers", errInUse)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	// Only the owner may read the file. SQLite gives its other files the same mode.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	if l.write, err = openDB(path, 1, "_pragma=auto_vacuum(2)", "_pragma=journal_mode(WAL)", "_pragma=synchronous(FULL)", "_txlock=immediate"); err != nil {
		return nil, explain(err)
	}
	if l.readOnly, err = migrate(ctx, l.write, path, steps); err != nil {
		return nil, explain(err)
	}
	if l.read, err = openDB(path, 4, "_pragma=query_only(1)"); err != nil {
		return nil, explain(err)
	}
	if l.readOnly != nil {
		cfg.Logger.Error().Err(l.readOnly).Str("file", path).Msg("the database is opened for reading only")
		err, l.write = l.write.Close(), nil
		if err != nil {
			return nil, err
		}
	} else if err := l.prepare(ctx); err != nil {
		return nil, explain(err)
	}
	return l, explain(l.findEnd(ctx))
}

// openDB opens a database with a fixed number of connections.
func openDB(path string, connections int, options ...string) (*sql.DB, error) {
	options = append([]string{"_pragma=busy_timeout(10000)", "_pragma=cell_size_check(1)"}, options...)
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: strings.Join(options, "&"), OmitHost: true}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// prepare prepares the log for Append. It removes data that a previous process has
// left.
func (l *Log) prepare(ctx context.Context) error {
	if err := l.dropOld(ctx); err != nil {
		return err
	}
	l.shrink(ctx)
	var err error
	l.insert, err = l.write.PrepareContext(ctx, `INSERT INTO entries (seq, at, origin, counter, rules, body) VALUES (?, ?, ?, ?, ?, ?)`)
	return err
}

// Close closes the database. The log must not be used afterwards.
func (l *Log) Close() error {
	var errs []error
	if l.insert != nil {
		errs = append(errs, l.insert.Close())
	}
	for _, db := range []*sql.DB{l.read, l.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(append(errs, l.lock.Unlock())...)
}

// Shared returns false: no other process appends.
func (l *Log) Shared() bool { return false }

// Path returns the file of the database.
func (l *Log) Path() string { return l.path }

// ReadOnly returns the reason if the log is read-only, and nil otherwise.
func (l *Log) ReadOnly() error { return l.readOnly }

// Ping reads from the database.
func (l *Log) Ping(ctx context.Context) error {
	_, err := l.Header(ctx)
	return errors.Join(err, l.readOnly)
}

// explain adds instructions to errors of SQLite.
func explain(err error) error {
	var e *driver.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case codes.SQLITE_FULL:
		return fmt.Errorf("the disk is full and nothing was written: free some space: %w", err)
	case codes.SQLITE_IOERR:
		return fmt.Errorf("the disk has failed or is full: %w", err)
	case codes.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", errForeign, err)
	case codes.SQLITE_CORRUPT:
		return fmt.Errorf("%w: restore a backup: %w", journal.ErrDamaged, err)
	case codes.SQLITE_READONLY, codes.SQLITE_PERM, codes.SQLITE_CANTOPEN:
		return fmt.Errorf("the file cannot be used: check the owner and mode of the file and of its directory: %w", err)
	}
	return err
}

// notNothing returns nil if err reports a missing row or file.
func notNothing(err error) error {
	if errors.Is(err, sql.ErrNoRows) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return explain(err)
}

func instant(nanos int64) time.Time { return time.Unix(0, nanos).UTC() }
