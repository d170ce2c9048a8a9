package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// answerLimit bounds a transaction and a query outside of one. A PostgreSQL whose machine or network ends without closing
// its connections would otherwise hold its callers until the kernel gives up, after about a quarter of an hour.
const answerLimit = 30 * time.Second

// errSilent reports a database that has not answered in time. It wraps no error of a context: the context of the caller
// has not ended.
var errSilent = errors.New("the database does not answer: check PostgreSQL and the network to it")

// bounded returns a context that ends when a database on the network should have answered.
func (d *database) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if d.limit == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d.limit, errSilent)
}

// explain adds instructions to an error of a database. Ctx is a context of bounded.
func explain(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, errSilent) {
		return err
	}
	if errors.Is(context.Cause(ctx), errSilent) {
		return fmt.Errorf("%w (%v)", errSilent, err) //nolint:errorlint // see errSilent
	}
	var lite *sqlite.Error
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_FULL, errors.As(err, &pg) && pg.Code == "53100":
		return fmt.Errorf("the disk of the database is full and nothing was written: free some space: %w", err)
	case errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_IOERR:
		return fmt.Errorf("the disk of the database has failed or is full: %w", err)
	}
	return err
}

// row is the row of a query.
type row struct {
	*sql.Row

	ctx    context.Context //nolint:containedctx // a row lives for one query
	cancel context.CancelFunc
}

// Scan copies the columns of the row. It must be called once.
func (r row) Scan(to ...any) error {
	defer r.cancel()
	return explain(r.ctx, r.Row.Scan(to...))
}
