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
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/klauspost/compress/zstd"
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
	return openLimited(ctx, database, answerLimit)
}

// openLimited is Open with another bound than answerLimit.
func openLimited(ctx context.Context, database string, limit time.Duration) (*Store, error) {
	s, err := open(database, limit)
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

// maxDefinition bounds an unpacked definition, in bytes.
const maxDefinition = 64 << 20

func open(address string, limit time.Duration) (*Store, error) {
	s := &Store{wake: map[string]chan struct{}{}, takers: map[string]*Taker{}, pages: defaultPageBounds, writing: make(chan struct{}, 1)}
	var err error
	if s.packer, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2)); err != nil {
		return nil, err
	}
	if s.unpacker, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxDefinition)); err != nil {
		return nil, err
	}
	if strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://") {
		cfg, err := pgx.ParseConfig(address)
		if err != nil {
			return nil, err // the driver hides the password
		}
		if cfg.ConnectTimeout == 0 { // database/sql also connects without the context of a call
			cfg.ConnectTimeout = limit
		}
		db := stdlib.OpenDB(*cfg)
		db.SetMaxOpenConns(16)
		db.SetMaxIdleConns(16)
		s.db, s.postgres = &database{DB: db, limit: limit}, true
		return s, nil
	}
	if strings.Contains(address, "://") {
		return nil, fmt.Errorf("%s is neither a file nor a URL that begins with postgres://", redacted(address))
	}
	if err := os.MkdirAll(filepath.Dir(address), 0o700); err != nil {
		return nil, err
	}
	// The journal of a WAL database survives the end of the process at any instant. NORMAL
	// may lose the last transactions when the machine loses power.
	dsn := "file:" + (&url.URL{Path: address}).EscapedPath() + "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=foreign_keys(0)"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	s.db = &database{DB: db, keep: true, prepared: map[string]*sql.Stmt{}}
	return s, nil
}

func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the address"
	}
	return u.Redacted()
}

// migrate creates the tables. With PostgreSQL, processes that start at the same time take turns.
func (s *Store) migrate(ctx context.Context) error {
	words := strings.NewReplacer("@serial@", "INTEGER PRIMARY KEY AUTOINCREMENT", "@blob@", "BLOB", "@bytewise@", "", "@indexed@", "WITHOUT ROWID")
	if s.postgres {
		words = strings.NewReplacer("@serial@", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "@blob@", "BYTEA", "@bytewise@", `COLLATE "C"`, "@indexed@", "")
	}
	if err := s.enableShrink(ctx); err != nil {
		return err
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
		var sums int
		if err := tx.tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM sizes LIMIT 1) AS one`).Scan(&sums); err != nil || sums > 0 {
			return err
		}
		return tx.exec(`INSERT INTO sizes (hour, shard, size) ` + sumSizes) // the database of an older version may have rows
	})
}

// enableShrink lets a new file of SQLite keep track of its free pages, so that [Store.Shrink] has an
// effect. It must rewrite the file, which has no tables yet: the journal mode is already in it.
func (s *Store) enableShrink(ctx context.Context) error {
	if s.postgres {
		return nil
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it returns to the pool
	var mode int
	if err := conn.QueryRowContext(ctx, `PRAGMA auto_vacuum`).Scan(&mode); err != nil || mode != 0 {
		return err
	}
	_, err = conn.ExecContext(ctx, `PRAGMA auto_vacuum = incremental; VACUUM`)
	return err
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
