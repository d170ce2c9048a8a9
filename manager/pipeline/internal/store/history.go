package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Filter selects runs of an account. Zero fields select all.
type Filter struct {
	Account  string
	Pipeline string
	Status   string
	Branch   string
	// Marks are kinds, names and values, see [Tx.Mark].
	Marks []Mark
	// Text is a part of the run's Search, without regard to case.
	Text          string
	After, Before time.Time // of creation
	BeforeID      string    // continue after this run of the previous page, created at Before
	Limit         int
}

// Mark is a kind, a name and a value by which runs can be found.
type Mark struct{ Kind, Name, Value string }

// Runs returns the runs that a filter selects, the newest first, without their definition.
func (s *Store) Runs(ctx context.Context, f Filter) ([]Run, error) {
	query, args := f.query(s.postgres)
	var runs []Run
	err := each(ctx, s.db, s.rebind(query), args, func(scan func(...any) error) error {
		r, err := scanHead(scan)
		runs = append(runs, r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing runs: %w", err)
	}
	return runs, nil
}

func (f Filter) query(postgres bool) (string, []any) {
	where := []string{"runs.account = ?"}
	args := []any{f.Account}
	add := func(condition string, values ...any) {
		where = append(where, condition)
		args = append(args, values...)
	}
	if f.Pipeline != "" {
		add("pipeline = ?", f.Pipeline)
	}
	if f.Status != "" {
		add("status = ?", f.Status)
	}
	if f.Branch != "" {
		add("branch = ?", f.Branch)
	}
	if !f.After.IsZero() {
		add("runs.created >= ?", millis(f.After))
	}
	switch {
	case !f.Before.IsZero() && f.BeforeID != "":
		add("(runs.created < ? OR runs.created = ? AND id < ?)", millis(f.Before), millis(f.Before), f.BeforeID)
	case !f.Before.IsZero():
		add("runs.created < ?", millis(f.Before))
	}
	from, created, id := "", "runs.created", "id"
	for i, m := range f.Marks {
		if i == 0 { // its key has the order of the list, so that a rare mark needs no search
			from = " JOIN marks AS mark ON mark.account = runs.account AND mark.run = id"
			created, id = "mark.created", "mark.run"
			add("mark.account = ? AND mark.kind = ? AND mark.name = ? AND mark.value = ?", f.Account, m.Kind, m.Name, m.Value)
			continue
		}
		add("EXISTS (SELECT 1 FROM marks WHERE marks.account = runs.account AND kind = ? AND name = ? AND value = ? AND marks.created = runs.created AND run = id)", m.Kind, m.Name, m.Value)
	}
	if f.Text != "" {
		like := "search LIKE ? ESCAPE '!'"
		if postgres {
			like = "search ILIKE ? ESCAPE '!'"
		}
		add(like, "%"+strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(f.Text)+"%")
	}
	args = append(args, f.Limit)
	return headQuery + from + ` WHERE ` + strings.Join(where, " AND ") + ` ORDER BY ` + created + ` DESC, ` + id + ` DESC LIMIT ?`, args
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

// Expire removes up to limit runs that ended before a time, and returns their number.
func (s *Store) Expire(ctx context.Context, before time.Time, limit int) (int, error) {
	removed := 0
	err := s.Update(ctx, func(tx *Tx) error {
		removed = 0
		type key struct{ account, id string }
		var old []key
		err := each(ctx, tx.tx, s.rebind(`SELECT account, id FROM runs WHERE ended > 0 AND ended < ? ORDER BY ended LIMIT ?`),
			[]any{millis(before), limit}, func(scan func(...any) error) error {
				var k key
				err := scan(&k.account, &k.id)
				old = append(old, k)
				return err
			})
		if err != nil {
			return err
		}
		for _, k := range old {
			err := tx.exec(`DELETE FROM steps WHERE account = ? AND stage IN (SELECT stage FROM stages WHERE account = ? AND run = ?)`, k.account, k.account, k.id)
			if err != nil {
				return err
			}
			for _, table := range []string{"nodes WHERE account = ? AND run", "marks WHERE account = ? AND run", "messages WHERE account = ? AND run", "stages WHERE account = ? AND run", "runs WHERE account = ? AND id"} {
				if err := tx.exec(`DELETE FROM `+table+` = ?`, k.account, k.id); err != nil {
					return err
				}
			}
			removed++
		}
		return nil
	})
	return removed, err
}

// Head returns a run without its definition and its nodes. It fails with [ErrNotFound].
func (s *Store) Head(ctx context.Context, account, id string) (*Run, error) {
	return scanOne(s.db.QueryRowContext(ctx, s.rebind(headQuery+` WHERE runs.account = ? AND id = ?`), account, id).Scan)
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

const headQuery = `SELECT runs.account, id, number, pipeline, status, branch, cause, search, runs.created, ended, version, state FROM runs`

func scanHead(scan func(...any) error) (r Run, err error) {
	var created, ended int64
	err = scan(&r.Account, &r.ID, &r.Number, &r.Pipeline, &r.Status, &r.Branch, &r.Cause, &r.Search, &created, &ended, &r.Version, (*[]byte)(&r.State))
	r.Created, r.Ended = fromMillis(created), fromMillis(ended)
	return r, err
}
