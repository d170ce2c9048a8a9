package store

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// schema creates the tables where they do not exist. It is written for both databases, except
// for the words between @.
//
//go:embed schema.sql
var schema string

// Open opens the database at a URL of PostgreSQL ("postgres://...") or in a file of SQLite,
// and creates its tables. A file of SQLite is for one process.
func Open(ctx context.Context, database string) (*Store, error) {
	s, err := open(database)
	if err != nil {
		return nil, fmt.Errorf("opening the database of pipelines: %w", err)
	}
	if err := s.migrate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("creating the tables of pipelines: %w", err), s.db.Close())
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if s.postgres {
		s.listener.Go(func() { s.listen(ctx) })
	}
	return s, nil
}

func open(database string) (*Store, error) {
	s := &Store{wake: map[string]chan struct{}{}, writing: make(chan struct{}, 1)}
	if strings.HasPrefix(database, "postgres://") || strings.HasPrefix(database, "postgresql://") {
		db, err := sql.Open("pgx", database)
		if err != nil {
			return nil, err // the driver hides the password
		}
		db.SetMaxOpenConns(16)
		db.SetMaxIdleConns(16)
		s.db, s.postgres = db, true
		return s, nil
	}
	if strings.Contains(database, "://") {
		return nil, fmt.Errorf("%s is neither a file nor a URL that begins with postgres://", redacted(database))
	}
	if err := os.MkdirAll(filepath.Dir(database), 0o700); err != nil {
		return nil, err
	}
	// The journal of a WAL database survives the end of the process at any instant. NORMAL
	// may lose the last transactions when the machine loses power.
	dsn := "file:" + (&url.URL{Path: database}).EscapedPath() + "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=foreign_keys(0)"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	s.db = db
	return s, nil
}

func redacted(database string) string {
	u, err := url.Parse(database)
	if err != nil {
		return "the address"
	}
	return u.Redacted()
}

// migrate creates the tables. With PostgreSQL, processes that start at the same time take turns.
func (s *Store) migrate(ctx context.Context) error {
	words := strings.NewReplacer("@serial@", "INTEGER PRIMARY KEY AUTOINCREMENT", "@blob@", "BLOB")
	if s.postgres {
		words = strings.NewReplacer("@serial@", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "@blob@", "BYTEA")
	}
	return s.Update(ctx, func(tx *Tx) error {
		if s.postgres {
			if err := tx.exec(`SELECT pg_advisory_xact_lock(715203349)`); err != nil {
				return err
			}
		}
		for statement := range strings.SplitSeq(words.Replace(schema), ";") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if err := tx.exec(statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// conflict reports whether a transaction failed only because another one ran at the same time.
func conflict(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "40001" || pg.Code == "40P01"
	}
	var lite *sqlite.Error
	return errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_BUSY
}
