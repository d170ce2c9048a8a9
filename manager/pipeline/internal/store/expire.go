package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ExpireRuns removes up to limit runs that ended before a time, and returns their number.
func (s *Store) ExpireRuns(ctx context.Context, before time.Time, limit int) (int, error) {
	removed := 0
	err := s.Update(ctx, func(tx *Tx) error {
		removed = 0
		type key struct{ account, id string }
		var old []key
		lock := ""
		if s.postgres { // another process may remove the runs too, or continue one of them
			lock = " FOR UPDATE SKIP LOCKED"
		}
		err := each(ctx, tx.tx, s.rebind(`SELECT account, id FROM runs WHERE ended > 0 AND ended < ? ORDER BY ended LIMIT ?`+lock),
			[]any{millis(before), limit}, func(scan func(...any) error) error {
				var k key
				err := scan(&k.account, &k.id)
				old = append(old, k)
				return err
			})
		if err != nil {
			return err
		}
		sizes := sizes{}
		for _, k := range old {
			err := tx.exec(`DELETE FROM steps WHERE account = ? AND stage IN (SELECT stage FROM stages WHERE account = ? AND run = ?)`, k.account, k.account, k.id)
			if err != nil {
				return err
			}
			for _, table := range []string{"nodes WHERE account = ? AND run", "marks WHERE account = ? AND run", "messages WHERE account = ? AND run", "stages WHERE account = ? AND run"} {
				if err := tx.exec(`DELETE FROM `+table+` = ?`, k.account, k.id); err != nil {
					return err
				}
			}
			err = each(ctx, tx.tx, s.rebind(`DELETE FROM runs WHERE account = ? AND id = ? RETURNING created, ended, size`), []any{k.account, k.id}, func(scan func(...any) error) error {
				var created, ended, size int64
				err := scan(&created, &ended, &size)
				sizes.add(ended, created, -size)
				return err
			})
			if err != nil {
				return err
			}
			removed++
		}
		return tx.resize(sizes)
	})
	return removed, err
}

// ExpireStages removes about limit stages that ended before a time, and returns their number.
func (s *Store) ExpireStages(ctx context.Context, before time.Time, limit int) (int, error) {
	removed := 0
	err := s.Update(ctx, func(tx *Tx) error {
		removed = 0
		last := millis(before) - 1
		err := each(ctx, tx.tx, s.rebind(`SELECT ended FROM ended WHERE ended <= ? ORDER BY ended LIMIT 1 OFFSET ?`), []any{last, limit - 1},
			func(scan func(...any) error) error { return scan(&last) })
		if err != nil {
			return err
		}
		if err := tx.exec(`DELETE FROM ended_marks WHERE created <= ?`, last); err != nil {
			return err
		}
		sizes := sizes{}
		err = each(ctx, tx.tx, s.rebind(`DELETE FROM ended WHERE ended <= ? RETURNING ended, size`), []any{last}, func(scan func(...any) error) error {
			var ended, size int64
			err := scan(&ended, &size)
			sizes.add(ended, ended, -size)
			removed++
			return err
		})
		return errors.Join(err, tx.resize(sizes))
	})
	if err != nil {
		return 0, fmt.Errorf("removing ended stages: %w", err)
	}
	return removed, nil
}

// ForgetOutcomes removes the outcomes of days, sums of nothing, and the positions in lists of ended stages, that are
// older than a time. The last position of each account stays: its list continues, also if no stage
// ends for a long time.
func (s *Store) ForgetOutcomes(ctx context.Context, before time.Time) error {
	err := s.Update(ctx, func(tx *Tx) error {
		if err := tx.exec(`DELETE FROM outcomes WHERE day < ?`, millis(before)/msPerDay); err != nil {
			return err
		}
		if err := tx.exec(`DELETE FROM sizes WHERE size = 0`); err != nil {
			return err
		}
		return tx.exec(`DELETE FROM cursors WHERE updated < ? AND EXISTS (
			SELECT 1 FROM cursors AS newer WHERE newer.account = cursors.account AND newer.updated > cursors.updated)`, millis(before))
	})
	if err != nil {
		return fmt.Errorf("removing outcomes: %w", err)
	}
	return nil
}

// Shrink gives up to some pages of a file of SQLite that no longer have data back to the file
// system, and reports whether there are more. PostgreSQL does so by itself.
func (s *Store) Shrink(ctx context.Context, pages int) (more bool, err error) {
	if s.postgres {
		return false, nil
	}
	err = s.Update(ctx, func(tx *Tx) error {
		var free int
		if err := tx.tx.QueryRowContext(ctx, `PRAGMA freelist_count`).Scan(&free); err != nil {
			return err
		}
		more = free > pages
		// Each row of the result is a page.
		return each(ctx, tx.tx, fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, pages), nil, func(func(...any) error) error { return nil })
	})
	if err != nil {
		return false, fmt.Errorf("giving free pages back: %w", err)
	}
	return more, nil
}
