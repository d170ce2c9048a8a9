package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Errors of the store, for errors.Is.
var (
	// ErrNotFound means that the account has no run with the id.
	ErrNotFound = errors.New("not found")
	// ErrExists means that the account already has a run with the id.
	ErrExists = errors.New("the id is taken")
	// ErrStale means that another process has claimed the message in the meantime. It handles
	// the message.
	ErrStale = errors.New("another process has the message")
)

// Store is a database of runs and messages. It is safe for concurrent use.
type Store struct {
	db       *sql.DB
	postgres bool
	stop     context.CancelFunc
	listener sync.WaitGroup

	mu   sync.Mutex
	wake map[string]chan struct{} // topic to a channel that holds one token when there are new messages

	// writing holds one token if the database is SQLite: its own lock would let writers sleep.
	writing chan struct{}
}

// Close closes the database.
func (s *Store) Close() error {
	s.stop()
	s.listener.Wait()
	return s.db.Close()
}

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.db.PingContext(ctx) }

// Tx is a transaction. It is valid until the function of [Store.Update] returns.
type Tx struct {
	store *Store
	tx    *sql.Tx
	ctx   context.Context //nolint:containedctx // a Tx lives for one call
	sent  map[string]bool // topics with new messages that are due
}

// Update runs fn in a transaction. It commits if fn returns nil, and otherwise changes
// nothing. It repeats the whole transaction when the database reports a conflict with another
// one, so fn must not have other effects.
func (s *Store) Update(ctx context.Context, fn func(*Tx) error) error {
	const most = 10
	for i := 1; ; i++ {
		err := s.update(ctx, fn)
		if err == nil || i == most || !conflict(err) || ctx.Err() != nil {
			return err
		}
	}
}

func (s *Store) update(ctx context.Context, fn func(*Tx) error) error {
	if !s.postgres {
		select {
		case s.writing <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		defer func() { <-s.writing }()
	}
	sqlTx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	defer func() { _ = sqlTx.Rollback() }() // without effect after the commit
	tx := &Tx{store: s, tx: sqlTx, ctx: ctx, sent: map[string]bool{}}
	if err := fn(tx); err != nil {
		return err
	}
	if s.postgres {
		for topic := range tx.sent {
			if err := tx.exec(`SELECT pg_notify('`+channel+`', ?)`, topic); err != nil {
				return err
			}
		}
	}
	if err := sqlTx.Commit(); err != nil {
		return fmt.Errorf("committing: %w", err)
	}
	for topic := range tx.sent {
		s.Notify(topic)
	}
	return nil
}

func (tx *Tx) exec(query string, args ...any) error {
	_, err := tx.tx.ExecContext(tx.ctx, tx.store.rebind(query), args...)
	return err
}

// execCount executes a statement and returns the number of changed rows.
func (tx *Tx) execCount(query string, args ...any) (int64, error) {
	r, err := tx.tx.ExecContext(tx.ctx, tx.store.rebind(query), args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// rebind replaces each ? of a statement by the placeholder of the database. Statements of this
// package contain no ? elsewhere.
func (s *Store) rebind(query string) string {
	if !s.postgres {
		return query
	}
	var b strings.Builder
	for i := 1; ; i++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(i))
		query = after
	}
}

// each calls fn for each row of a query.
func each(ctx context.Context, db querier, query string, args []any, fn func(scan func(...any) error) error) (err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// millis returns the milliseconds of a time since 1970, and 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
