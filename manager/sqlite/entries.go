package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// Limits for one Read and for one deletion.
const (
	readEntries = 512
	readBytes   = 8 << 20
	dropEntries = 256
)

// Header returns the header of the log.
func (l *Log) Header(ctx context.Context) (journal.Header, error) {
	var h journal.Header
	err := l.read.QueryRowContext(ctx, `SELECT id, body FROM header`).Scan(&h.ID, &h.Body)
	return h, notNothing(err)
}

// SetHeader replaces the header.
func (l *Log) SetHeader(ctx context.Context, old, header journal.Header) (bool, error) {
	if l.readOnly != nil {
		return false, l.readOnly
	}
	var r sql.Result
	var err error
	if old.ID == "" {
		r, err = l.write.ExecContext(ctx, `INSERT INTO header (one, id, body) VALUES (1, ?, ?) ON CONFLICT DO NOTHING`, header.ID, header.Body)
	} else {
		r, err = l.write.ExecContext(ctx, `UPDATE header SET id = ?, body = ? WHERE id = ? AND body = ?`, header.ID, header.Body, old.ID, old.Body)
	}
	if err != nil {
		return false, explain(err)
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

// Append writes a batch and returns when it is on the disk.
func (l *Log) Append(ctx context.Context, _ string, b journal.Batch) (journal.Entry, error) {
	if l.readOnly != nil {
		return journal.Entry{}, l.readOnly
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// An interrupted insert would have an unknown result.
	ctx = context.WithoutCancel(ctx)
	if l.unsure {
		if err := l.findEnd(ctx); err != nil {
			return journal.Entry{}, explain(err)
		}
	}
	if l.last.Origin == b.Origin && l.last.Counter >= b.Counter {
		if l.last.Counter == b.Counter {
			return l.last, nil
		}
		return journal.Entry{}, fmt.Errorf("batch %d comes after %d", b.Counter, l.last.Counter)
	}
	at := max(b.At.UnixNano(), l.at)
	e := journal.Entry{Batch: b, Position: journal.Position{Seq: l.end.Seq + 1}}
	e.At = instant(at)
	if _, err := l.insert.ExecContext(ctx, e.Seq, at, b.Origin, b.Counter, b.Rules, b.Body); err != nil {
		l.unsure = true
		return journal.Entry{}, explain(err)
	}
	l.end, l.at, l.last = e.Position, at, e
	return e, nil
}

// findEnd reads the end of the log.
func (l *Log) findEnd(ctx context.Context) error {
	s, err := l.Snapshot(ctx)
	if err != nil {
		return err
	}
	l.end, l.at, l.last = s.Position, 0, journal.Entry{}
	if s.ID != "" {
		l.at = s.At.UnixNano()
	}
	entries, err := l.entries(ctx, `SELECT seq, at, origin, counter, rules, body FROM entries ORDER BY seq DESC LIMIT 1`)
	if err != nil {
		return err
	}
	if len(entries) > 0 && entries[0].Seq > l.end.Seq {
		l.last = entries[0]
		l.end, l.at = l.last.Position, l.last.At.UnixNano()
	}
	l.unsure = false
	return nil
}

// Read returns entries. It never waits.
func (l *Log) Read(ctx context.Context, after uint64) ([]journal.Entry, error) {
	entries, err := l.entries(ctx, `SELECT seq, at, origin, counter, rules, body FROM entries WHERE seq > ? ORDER BY seq LIMIT ?`, after, readEntries)
	return entries, explain(err)
}

func (l *Log) entries(ctx context.Context, query string, args ...any) (_ []journal.Entry, err error) {
	rows, err := l.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var entries []journal.Entry
	size := 0
	for rows.Next() && size < readBytes {
		var e journal.Entry
		var at int64
		if err := rows.Scan(&e.Seq, &at, &e.Origin, &e.Counter, &e.Rules, &e.Body); err != nil {
			return nil, err
		}
		e.At = instant(at)
		entries = append(entries, e)
		size += len(e.Body)
	}
	return entries, rows.Err()
}

// End returns the end of the log.
func (l *Log) End(ctx context.Context) (journal.End, error) {
	h, err := l.Header(ctx)
	if err != nil {
		return journal.End{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return journal.End{Position: l.end, Log: h.ID}, nil
}

// Snapshot describes the saved state.
func (l *Log) Snapshot(ctx context.Context) (journal.Snapshot, error) {
	var s journal.Snapshot
	var at, saved int64
	err := l.read.QueryRowContext(ctx, `SELECT id, seq, at, saved, rules, size, chunks FROM snapshot`).
		Scan(&s.ID, &s.Seq, &at, &saved, &s.Rules, &s.Size, &s.Chunks)
	if err != nil {
		return journal.Snapshot{}, notNothing(err)
	}
	s.At, s.Saved = instant(at), instant(saved)
	return s, nil
}

// Chunk reads a part of a saved state.
func (l *Log) Chunk(ctx context.Context, id string, n int) ([]byte, error) {
	var b []byte
	err := l.read.QueryRowContext(ctx, `SELECT body FROM chunks WHERE snapshot = ? AND n = ?`, id, n).Scan(&b)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("%w: part %d of %s is missing", journal.ErrMoved, n, id)
	}
	return b, explain(err)
}

// PutChunk stores a part of a state that is being saved.
func (l *Log) PutChunk(ctx context.Context, id string, n int, chunk []byte) error {
	if l.readOnly != nil {
		return l.readOnly
	}
	_, err := l.write.ExecContext(ctx, `INSERT INTO chunks (snapshot, n, body) VALUES (?, ?, ?)`, id, n, chunk)
	return explain(err)
}

// Commit makes a state the saved one.
func (l *Log) Commit(ctx context.Context, s journal.Snapshot) error {
	if l.readOnly != nil {
		return l.readOnly
	}
	_, err := l.write.ExecContext(ctx, `INSERT INTO snapshot (one, id, seq, at, saved, rules, size, chunks) VALUES (1, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET id = excluded.id, seq = excluded.seq, at = excluded.at, saved = excluded.saved,
			rules = excluded.rules, size = excluded.size, chunks = excluded.chunks
		WHERE excluded.seq > snapshot.seq`,
		s.ID, s.Seq, s.At.UnixNano(), s.Saved.UnixNano(), s.Rules, s.Size, s.Chunks)
	if err != nil {
		return explain(err)
	}
	if err := l.dropOld(ctx); err != nil {
		return explain(err)
	}
	l.shrink(ctx)
	return nil
}

// dropOld removes entries and chunks that the saved state makes unnecessary. It works
// in small steps, so that Append never waits long.
func (l *Log) dropOld(ctx context.Context) error {
	for _, query := range []string{
		`DELETE FROM entries WHERE seq IN (SELECT seq FROM entries WHERE seq <= (SELECT seq FROM snapshot) ORDER BY seq LIMIT ?)`,
		`DELETE FROM chunks WHERE id IN (SELECT id FROM chunks WHERE snapshot NOT IN (SELECT id FROM snapshot) LIMIT ?)`,
	} {
		for {
			r, err := l.write.ExecContext(ctx, query, dropEntries)
			if err != nil {
				return err
			}
			if n, err := r.RowsAffected(); err != nil || n == 0 {
				if err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}

// Lead always succeeds: only one process has the database, and its journal saves one
// state at a time.
func (l *Log) Lead(context.Context) (func(), error) {
	if l.readOnly != nil {
		return nil, l.readOnly
	}
	return func() {}, nil
}
