package store

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"time"
)

// mostStatements bounds the statements that stay prepared. The filters of lists could make any number of them.
const mostStatements = 200

// database is a database whose statements stay prepared, as the driver of PostgreSQL does by itself: SQLite needs as
// long to parse a statement as to carry it out.
type database struct {
	*sql.DB

	keep  bool
	limit time.Duration // see bounded, or 0

	mu       sync.Mutex
	prepared map[string]*sql.Stmt
}

// statement returns the prepared form of a query, or nil if it is not kept.
func (d *database) statement(ctx context.Context, query string) *sql.Stmt {
	if !d.keep || strings.HasPrefix(query, "CREATE") {
		return nil
	}
	d.mu.Lock()
	stmt, full := d.prepared[query], len(d.prepared) >= mostStatements
	d.mu.Unlock()
	if stmt != nil || full {
		return stmt
	}
	stmt, err := d.PrepareContext(ctx, query)
	if err != nil {
		return nil // the caller's own attempt has the error
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if other := d.prepared[query]; other != nil {
		_ = stmt.Close()
		return other
	}
	d.prepared[query] = stmt
	return stmt
}

func (d *database) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt := d.statement(ctx, query); stmt != nil {
		return stmt.QueryContext(ctx, args...)
	}
	return d.DB.QueryContext(ctx, query, args...)
}

// QueryRowContext waits a bounded time for the row. The caller must scan it.
func (d *database) QueryRowContext(ctx context.Context, query string, args ...any) row {
	ctx, cancel := d.bounded(ctx)
	if stmt := d.statement(ctx, query); stmt != nil {
		return row{stmt.QueryRowContext(ctx, args...), ctx, cancel}
	}
	return row{d.DB.QueryRowContext(ctx, query, args...), ctx, cancel}
}

// transaction is a transaction that uses the prepared statements of its database.
type transaction struct {
	*sql.Tx

	db *database
}

func (t transaction) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt := t.db.statement(ctx, query); stmt != nil {
		return t.StmtContext(ctx, stmt).QueryContext(ctx, args...)
	}
	return t.Tx.QueryContext(ctx, query, args...)
}

// QueryRowContext needs no bound: [Store.Update] has one.
func (t transaction) QueryRowContext(ctx context.Context, query string, args ...any) row {
	if stmt := t.db.statement(ctx, query); stmt != nil {
		return row{t.StmtContext(ctx, stmt).QueryRowContext(ctx, args...), ctx, func() {}}
	}
	return row{t.Tx.QueryRowContext(ctx, query, args...), ctx, func() {}}
}

func (t transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if stmt := t.db.statement(ctx, query); stmt != nil {
		return t.StmtContext(ctx, stmt).ExecContext(ctx, args...)
	}
	return t.Tx.ExecContext(ctx, query, args...)
}
