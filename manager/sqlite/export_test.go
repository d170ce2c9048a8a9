package sqlite

import (
	"context"
	"fmt"
)

// OpenVersion opens a database like a later program, whose additional versions consist
// of these statements.
func OpenVersion(ctx context.Context, path string, more ...string) (*Log, error) {
	steps := append([]migration{}, migrations...)
	for _, s := range more {
		steps = append(steps, statements(`CREATE TABLE before_`+fmt.Sprint(len(steps))+` (x)`, s))
	}
	return open(ctx, path, Config{}, steps)
}

// Limit bounds the size of the database in bytes, to simulate a full disk.
func (l *Log) Limit(ctx context.Context, bytes int) error {
	_, err := l.write.ExecContext(ctx, fmt.Sprint("PRAGMA max_page_count = ", bytes/4096))
	return err
}
