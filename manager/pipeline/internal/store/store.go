package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
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
	db       *database
	postgres bool
	stop     context.CancelFunc
	listener sync.WaitGroup
	packer   *zstd.Encoder // of definitions
	unpacker *zstd.Decoder

	takers map[string]*Taker // by topic
	pages  pageBounds

	mu   sync.Mutex
	wake map[string]chan struct{} // topic to a channel that holds one token when there are new messages

	// writing holds one token if the database is SQLite: its own lock would let writers sleep.
	writing chan struct{}
}

// Close closes the database. Calls that are running fail; the decoder of definitions has nothing to close, and may be in use.
func (s *Store) Close() error {
	s.stop()
	s.listener.Wait()
	return s.db.Close()
}

// Shared reports whether other processes may use the database, too.
func (s *Store) Shared() bool { return s.postgres }

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := s.db.bounded(ctx)
	defer cancel()
	return explain(ctx, s.db.PingContext(ctx))
}

// Tx is a transaction. It is valid until the function of [Store.Update] returns.
type Tx struct {
	store *Store
	tx    transaction
	ctx   context.Context //nolint:containedctx // a Tx lives for one call
	sent  map[string]bool // topics with new messages that any process may claim at once
	due   map[string]bool // topics of which this process must look when the next message is due
	lanes map[string]bool // lanes with new messages
	taken []Message       // new messages that this process has taken
}

// Update runs fn in a transaction. It commits if fn returns nil, and otherwise changes
// nothing. It repeats the whole transaction when the database reports a conflict with another
// one, so fn must not have other effects. If the database does not answer for 30 seconds, Update
// fails, and it is not known whether the transaction was committed.
func (s *Store) Update(ctx context.Context, fn func(*Tx) error) error {
	const most = 10
	for i := 1; ; i++ {
		err := s.update(ctx, fn)
		if err == nil || i == most || !conflict(err) || ctx.Err() != nil {
			return err
		}
	}
}

func (s *Store) update(ctx context.Context, fn func(*Tx) error) (err error) {
	ctx, cancel := s.db.bounded(ctx)
	defer func() {
		err = explain(ctx, err)
		cancel()
	}()
	if !s.postgres {
		select {
		case s.writing <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		defer func() { <-s.writing }()
	}
	begin := ctx
	if !s.postgres {
		// When the context of BeginTx ends, database/sql rolls back in the background. The file would stay locked for a time after
		// Update, and even after Close. The statements still end with ctx.
		begin = context.WithoutCancel(ctx)
	}
	sqlTx, err := s.db.BeginTx(begin, nil)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	defer func() { _ = sqlTx.Rollback() }() // without effect after the commit
	tx := &Tx{store: s, tx: transaction{sqlTx, s.db}, ctx: ctx, sent: map[string]bool{}, due: map[string]bool{}, lanes: map[string]bool{}}
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
	for topic := range tx.due {
		s.Notify(topic)
	}
	for topic, messages := range byTopic(tx.taken) {
		s.takers[topic].Take(messages)
	}
	return nil
}

func byTopic(messages []Message) map[string][]Message {
	all := map[string][]Message{}
	for _, m := range messages {
		all[m.Topic] = append(all[m.Topic], m)
	}
	return all
}

func (tx *Tx) exec(query string, args ...any) error {
	_, err := tx.tx.ExecContext(tx.ctx, tx.store.rebind(query), args...)
	return err
}

// insert inserts rows with few statements, and calls fn with the rows that the statements return.
func (tx *Tx) insert(into string, rows [][]any, end string, fn func(scan func(...any) error) error) error {
	const together = 200
	for chunk := range slices.Chunk(rows, together) {
		row := "(?" + strings.Repeat(", ?", len(chunk[0])-1) + ")"
		query := into + " VALUES " + row + strings.Repeat(", "+row, len(chunk)-1) + " " + end
		args := slices.Concat(chunk...)
		var err error
		if fn == nil {
			err = tx.exec(query, args...)
		} else {
			err = each(tx.ctx, tx.tx, tx.store.rebind(query), args, fn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// execCount executes a statement and returns the number of changed rows.
func (tx *Tx) execCount(query string, args ...any) (int64, error) {
	r, err := tx.tx.ExecContext(tx.ctx, tx.store.rebind(query), args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// maxRows bounds the rows of one statement: each number needs its own statement, which stays prepared.
const maxRows = 20

// rows returns a list of n equal parts of a statement.
func rows(part string, n int) string { return strings.Repeat(part+", ", n-1) + part }

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

// each calls fn for each row of a query. Outside of a transaction, it waits a bounded time for all rows.
func each(ctx context.Context, db querier, query string, args []any, fn func(scan func(...any) error) error) (err error) {
	if d, ok := db.(*database); ok {
		bounded, cancel := d.bounded(ctx)
		ctx = bounded
		defer func() {
			err = explain(ctx, err)
			cancel()
		}()
	}
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
