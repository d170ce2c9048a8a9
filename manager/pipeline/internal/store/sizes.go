package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	msPerMinute = 60 * 1000
	msPerHour   = 60 * msPerMinute
	// sizeShards is the number of sums of an hour, so that few transactions of PostgreSQL wait for each other.
	sizeShards = 8
)

// sizes are changes of the sizes of ended runs and stages, by hour and shard. They are summed up in the transactions that
// change the rows, so that [Store.Excess] need not read the rows.
type sizes map[sizeKey]int64

type sizeKey struct{ hour, shard int64 }

// add adds the size of a row. Spread is a number that the row keeps, by which it gets a shard.
func (s sizes) add(ended, spread, size int64) {
	if ended > 0 {
		s[sizeKey{ended / msPerHour, spread % sizeShards}] += size
	}
}

// resize changes the sums of sizes.
func (tx *Tx) resize(changes sizes) error {
	rows := make([][]any, 0, len(changes))
	// Transactions that change the same sums must lock them in the same order.
	for _, k := range slices.SortedFunc(maps.Keys(changes), func(k, l sizeKey) int { return cmp.Or(cmp.Compare(k.hour, l.hour), cmp.Compare(k.shard, l.shard)) }) {
		if changes[k] != 0 {
			rows = append(rows, []any{k.hour, k.shard, changes[k]})
		}
	}
	err := tx.insert(`INSERT INTO sizes (hour, shard, size)`, rows, `ON CONFLICT (hour, shard) DO UPDATE SET size = sizes.size + excluded.size`, nil)
	if err != nil {
		return fmt.Errorf("adding up the size of the history: %w", err)
	}
	return nil
}

// sumUp changes the outcomes and the sums of sizes after a change of a run. Only an ended run counts.
func (tx *Tx) sumUp(run *Run) error {
	changes, created := sizes{}, millis(run.Created)
	changes.add(run.sized.ended, created, -run.sized.size)
	run.sized = sized{millis(run.Ended), run.size}
	changes.add(run.sized.ended, created, run.size)
	return errors.Join(tx.recount(run), tx.resize(changes))
}

// sized is what the row of a run has of its end and its size.
type sized struct{ ended, size int64 }

// sumSizes computes the sums from the rows. Its numbers are msPerHour and sizeShards.
const sumSizes = `SELECT hour, shard, CAST(SUM(size) AS BIGINT) FROM (
	SELECT ended / 3600000 AS hour, created % 8 AS shard, size FROM runs WHERE ended > 0
	UNION ALL SELECT ended / 3600000, ended % 8, size FROM ended) AS all_sizes GROUP BY hour, shard`

// Excess returns the time before which ended runs and stages must be removed so that at most a
// number of bytes remain, or zero. It works in minutes, and never selects the last one.
func (s *Store) Excess(ctx context.Context, most int64) (before time.Time, err error) {
	before, err = s.excess(ctx, most)
	if err != nil {
		return time.Time{}, fmt.Errorf("measuring the history: %w", err)
	}
	return before, nil
}

func (s *Store) excess(ctx context.Context, most int64) (before time.Time, err error) {
	// The sums have the hour in which the rows become too large. Only the rows of this hour are read.
	var sum, hour int64
	found, older := false, false
	err = each(ctx, s.db, `SELECT hour, CAST(SUM(size) AS BIGINT) FROM sizes GROUP BY hour ORDER BY hour DESC`, nil, func(scan func(...any) error) error {
		var h, size int64
		err := scan(&h, &size)
		switch {
		case found:
			older = older || size > 0
		case sum+size > most:
			hour, found = h, true
		default:
			sum += size
		}
		return err
	})
	if err != nil || !found {
		return time.Time{}, err
	}
	from, to := hour*msPerHour, (hour+1)*msPerHour
	err = each(ctx, s.db, s.rebind(`SELECT minute, CAST(SUM(size) AS BIGINT) FROM (
		SELECT ended / 60000 AS minute, size FROM runs WHERE ended >= ? AND ended < ? AND ended > 0
		UNION ALL SELECT ended / 60000, size FROM ended WHERE ended >= ? AND ended < ?) AS minutes GROUP BY minute ORDER BY minute DESC`),
		[]any{from, to, from, to}, func(scan func(...any) error) error {
			var minute, size int64
			err := scan(&minute, &size)
			if sum > 0 && sum+size > most && before.IsZero() {
				before = time.UnixMilli((minute + 1) * msPerMinute).UTC()
			}
			sum += size
			return err
		})
	if before.IsZero() && older { // the last minute alone is too large
		before = time.UnixMilli(from).UTC()
	}
	return before, err
}
