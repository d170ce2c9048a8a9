package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Status is the status of a commit in a context at a Git provider, as it is wanted and as it was reported.
type Status struct {
	Account string
	// Slot identifies provider, repository, commit and context.
	Slot string
	// Run is the run that the status is about.
	Run string
	// Version counts the changes, from 1.
	Version int64
	Updated time.Time
	// Due is when the status must be looked at; zero is never.
	Due  time.Time
	Data []byte
}

const statusQuery = `SELECT account, slot, run, version, updated, due, data FROM statuses`

func scanStatus(scan func(...any) error) (*Status, error) {
	var st Status
	var updated, due int64
	err := scan(&st.Account, &st.Slot, &st.Run, &st.Version, &updated, &due, &st.Data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading the status of a commit: %w", err)
	}
	st.Updated, st.Due = fromMillis(updated), fromMillis(due)
	return &st, nil
}

// Status returns a status, and keeps other transactions from changing it until this one ends. It fails with
// [ErrNotFound].
func (tx *Tx) Status(account, slot string) (*Status, error) {
	query := statusQuery + ` WHERE account = ? AND slot = ?`
	if tx.store.postgres {
		query += ` FOR UPDATE`
	}
	return scanStatus(tx.tx.QueryRowContext(tx.ctx, tx.store.rebind(query), account, slot).Scan)
}

// SetStatus adds a status, or replaces the one of its slot. It sets the version.
func (tx *Tx) SetStatus(st *Status) error {
	err := tx.tx.QueryRowContext(tx.ctx, tx.store.rebind(
		`INSERT INTO statuses (account, slot, run, version, updated, due, data) VALUES (?, ?, ?, 1, ?, ?, ?)
		 ON CONFLICT (account, slot) DO UPDATE SET run = excluded.run, version = statuses.version + 1, updated = excluded.updated, due = excluded.due,
		 data = excluded.data RETURNING version`),
		st.Account, st.Slot, st.Run, millis(st.Updated), millis(st.Due), notNull(st.Data)).Scan(&st.Version)
	if err != nil {
		return fmt.Errorf("saving the status of a commit: %w", err)
	}
	return nil
}

// DueStatuses returns statuses of all accounts that are due, the earliest first.
func (s *Store) DueStatuses(ctx context.Context, now time.Time, limit int) ([]Status, error) {
	return s.statuses(ctx, statusQuery+` WHERE due > 0 AND due <= ? ORDER BY due LIMIT ?`, millis(now), limit)
}

// RunStatuses returns the statuses of a run, up to limit.
func (s *Store) RunStatuses(ctx context.Context, account, run string, limit int) ([]Status, error) {
	return s.statuses(ctx, statusQuery+` WHERE account = ? AND run = ? ORDER BY slot LIMIT ?`, account, run, limit)
}

func (s *Store) statuses(ctx context.Context, query string, args ...any) (all []Status, err error) {
	err = each(ctx, s.db, s.rebind(query), args, func(scan func(...any) error) error {
		st, err := scanStatus(scan)
		if err == nil {
			all = append(all, *st)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the statuses of commits: %w", err)
	}
	return all, nil
}

// ForgetStatuses removes statuses that were reported, or given up, before a time.
func (s *Store) ForgetStatuses(ctx context.Context, before time.Time) error {
	return s.Update(ctx, func(tx *Tx) error {
		return tx.exec(`DELETE FROM statuses WHERE due = 0 AND updated < ?`, millis(before))
	})
}
