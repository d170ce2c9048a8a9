package store

import (
	"context"
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

// ExpireStages removes about limit stages that ended before a time, and returns their number.
func (s *Store) ExpireStages(ctx context.Context, before time.Time, limit int) (int, error) {
	var removed int64
	err := s.Update(ctx, func(tx *Tx) error {
		last := millis(before) - 1
		err := each(ctx, tx.tx, s.rebind(`SELECT ended FROM ended WHERE ended <= ? ORDER BY ended LIMIT 1 OFFSET ?`), []any{last, limit - 1},
			func(scan func(...any) error) error { return scan(&last) })
		if err != nil {
			return err
		}
		if err := tx.exec(`DELETE FROM ended_marks WHERE created <= ?`, last); err != nil {
			return err
		}
		removed, err = tx.execCount(`DELETE FROM ended WHERE ended <= ?`, last)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("removing ended stages: %w", err)
	}
	return int(removed), nil
}

// ForgetOutcomes removes the outcomes of days, and the positions in lists of ended stages, that are
// older than a time. The last position of each account stays: its list continues, also if no stage
// ends for a long time.
func (s *Store) ForgetOutcomes(ctx context.Context, before time.Time) error {
	err := s.Update(ctx, func(tx *Tx) error {
		if err := tx.exec(`DELETE FROM outcomes WHERE day < ?`, millis(before)/msPerDay); err != nil {
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

// Excess returns the time before which ended runs and stages must be removed so that at most a
// number of bytes remain, or zero. It works in minutes, and never selects the last one.
func (s *Store) Excess(ctx context.Context, most int64) (before time.Time, err error) {
	var sum int64
	err = each(ctx, s.db, s.rebind(`SELECT minute, SUM(size) FROM (
		SELECT ended / 60000 AS minute, SUM(size) AS size FROM runs WHERE ended > 0 GROUP BY ended / 60000
		UNION ALL SELECT ended / 60000, SUM(size) FROM ended GROUP BY ended / 60000) AS minutes GROUP BY minute ORDER BY minute DESC`), nil,
		func(scan func(...any) error) error {
			var minute, size int64
			if err := scan(&minute, &size); err != nil {
				return err
			}
			if sum > 0 && sum+size > most && before.IsZero() {
				before = time.UnixMilli((minute + 1) * 60000).UTC()
			}
			sum += size
			return nil
		})
	if err != nil {
		return time.Time{}, fmt.Errorf("measuring the history: %w", err)
	}
	return before, nil
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
