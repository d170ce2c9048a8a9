package sqlite

import (
	"context"
	"fmt"
	"os"
)

// SQLite keeps the pages of deleted rows for new ones. The log gives them back to the
// file system, because a state may be large only for a short time.

const (
	// shrinkPages is the number of pages that are given back at a time. Append waits for
	// one such step at most.
	shrinkPages = 1024
	// maxVacuum is the largest database of an older version that is rewritten when it is
	// opened, in bytes.
	maxVacuum = 1 << 30
	// incremental is the mode in which SQLite can give pages back in steps.
	incremental = 2
)

// prepareShrinking rewrites a database of an older version once, so that it can shrink.
// It does nothing later.
func (l *Log) prepareShrinking(ctx context.Context) error {
	var mode int
	if err := l.write.QueryRowContext(ctx, "PRAGMA auto_vacuum").Scan(&mode); err != nil || mode == incremental {
		return err
	}
	if info, err := os.Stat(l.path); err != nil || info.Size() > maxVacuum {
		return err // it stays as large as it is
	}
	for _, statement := range []string{fmt.Sprint("PRAGMA auto_vacuum = ", incremental), "VACUUM"} {
		if _, err := l.write.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// shrink gives the free pages back, in small steps. A failure, for example on a full
// disk, is no reason to stop: SQLite uses the pages for new rows.
func (l *Log) shrink(ctx context.Context) {
	err := l.prepareShrinking(ctx)
	if err == nil {
		err = l.giveBack(ctx)
	}
	if err != nil {
		l.logger.Warn().Err(explain(err)).Str("file", l.path).Msg("The database does not shrink; it uses its free pages for new data")
	}
}

func (l *Log) giveBack(ctx context.Context) error {
	for {
		var free, mode int
		err := l.write.QueryRowContext(ctx, "SELECT freelist_count, auto_vacuum FROM pragma_freelist_count, pragma_auto_vacuum").Scan(&free, &mode)
		if err != nil || mode != incremental {
			return err
		}
		if free == 0 {
			break
		}
		if err := l.run(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", shrinkPages)); err != nil {
			return err
		}
	}
	return l.run(ctx, "PRAGMA wal_checkpoint(TRUNCATE)") // the file shrinks only then
}

// run runs a pragma to its end. Exec would stop at the first row of its result.
func (l *Log) run(ctx context.Context, pragma string) error {
	rows, err := l.write.QueryContext(ctx, pragma)
	if err != nil {
		return err
	}
	for rows.Next() {
		continue
	}
	if err := rows.Err(); err != nil {
		_ = rows.Close() // the error above is the reason
		return err
	}
	return rows.Close()
}
