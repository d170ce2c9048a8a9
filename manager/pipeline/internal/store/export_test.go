package store

import "context"

// OpenLimited is Open with another bound for the answers of PostgreSQL.
var OpenLimited = openLimited

// BoundPages changes the bounds of the work for a page.
func (s *Store) BoundPages(first, keys, rows int) { s.pages = pageBounds{first, keys, rows} }

// Sums returns the sums of sizes that the database has, and those of its rows, by hour and shard.
func (s *Store) Sums(ctx context.Context) (kept, computed map[[2]int64]int64, err error) {
	read := func(query string) (sums map[[2]int64]int64) {
		sums = map[[2]int64]int64{}
		if err == nil {
			err = each(ctx, s.db, query, nil, func(scan func(...any) error) error {
				var hour, shard, size int64
				err := scan(&hour, &shard, &size)
				sums[[2]int64{hour, shard}] = size
				return err
			})
		}
		return sums
	}
	return read(`SELECT hour, shard, size FROM sizes WHERE size <> 0`), read(sumSizes), err
}

// Clear removes all rows.
func (s *Store) Clear(ctx context.Context) error {
	return s.Update(ctx, func(tx *Tx) error {
		for _, table := range []string{"runs", "nodes", "marks", "ended", "ended_marks", "cursors", "outcomes", "sizes", "steps", "stages", "messages"} {
			if err := tx.exec(`DELETE FROM ` + table); err != nil {
				return err
			}
		}
		return nil
	})
}

// Packed returns the size of a packed text.
func (s *Store) Packed(b []byte) int { return len(s.pack(b)) }

// ForgetSums removes the sums of sizes.
func (s *Store) ForgetSums(ctx context.Context) error {
	return s.Update(ctx, func(tx *Tx) error { return tx.exec(`DELETE FROM sizes`) })
}
