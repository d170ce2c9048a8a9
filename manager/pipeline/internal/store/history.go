package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Runs returns the runs that a filter selects, the newest first, without their definition, and
// where the next page begins, or nil at the end. A page may be shorter than f.Limit before the end.
func (s *Store) Runs(ctx context.Context, f Filter) (runs []Run, next *Key, err error) {
	next, err = s.search(ctx, runList, f, headColumns, func(scan func(...any) error) (Key, error) {
		r, err := scanHead(scan)
		runs = append(runs, r)
		return Key{r.Created, r.ID}, err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("listing runs: %w", err)
	}
	return runs, next, nil
}

// Run returns a run without its definition, and its nodes. It fails with [ErrNotFound].
func (s *Store) Run(ctx context.Context, account, id string) (*Run, []Node, error) {
	run, err := s.Head(ctx, account, id)
	if err != nil {
		return nil, nil, err
	}
	all, err := nodes(ctx, s.db, s, account, id, 0)
	return run, all, err
}

// Changes returns the nodes of a run that were saved after a version.
func (s *Store) Changes(ctx context.Context, account, id string, after int64) ([]Node, error) {
	return nodes(ctx, s.db, s, account, id, after)
}

func nodes(ctx context.Context, db querier, s *Store, account, run string, after int64) ([]Node, error) {
	var all []Node
	err := each(ctx, db, s.rebind(`SELECT path, data FROM nodes WHERE account = ? AND run = ? AND version > ? ORDER BY path`), []any{account, run, after}, func(scan func(...any) error) error {
		var n Node
		var data []byte
		err := scan(&n.Path, &data)
		n.Data = data
		all = append(all, n)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the nodes of run %s: %w", run, err)
	}
	return all, nil
}

// Head returns a run without its definition and its nodes. It fails with [ErrNotFound].
func (s *Store) Head(ctx context.Context, account, id string) (*Run, error) {
	return scanOne(s.db.QueryRowContext(ctx, s.rebind(headQuery+` WHERE account = ? AND id = ?`), account, id).Scan)
}

// scanOne reads the row of one run.
func scanOne(scan func(...any) error) (*Run, error) {
	r, err := scanHead(scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading a run: %w", err)
	}
	return &r, nil
}

const (
	headColumns = `account, id, number, pipeline, status, branch, cause, search, created, ended, size, version, state`
	headQuery   = `SELECT ` + headColumns + ` FROM runs`
)

func scanHead(scan func(...any) error) (r Run, err error) {
	var created, ended int64
	err = scan(&r.Account, &r.ID, &r.Number, &r.Pipeline, &r.Status, &r.Branch, &r.Cause, &r.Search, &created, &ended, &r.size, &r.Version, (*[]byte)(&r.State))
	r.Created, r.Ended = fromMillis(created), fromMillis(ended)
	r.counted, r.sized = r.outcome(), sized{ended, r.size}
	return r, err
}
