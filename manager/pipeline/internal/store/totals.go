package store

import (
	"context"
	"fmt"
	"time"
)

// Totals are numbers about the whole database.
type Totals struct {
	// Active is the number of runs that have not ended, by account.
	Active map[string]int
	// Messages is the number of messages that are due and not claimed, by topic.
	Messages map[string]int
}

// Totals returns numbers about the whole database.
func (s *Store) Totals(ctx context.Context, now time.Time) (Totals, error) {
	t := Totals{Active: map[string]int{}, Messages: map[string]int{}}
	count := func(into map[string]int) func(func(...any) error) error {
		return func(scan func(...any) error) error {
			var key string
			var n int
			err := scan(&key, &n)
			into[key] = n
			return err
		}
	}
	err := each(ctx, s.db, `SELECT account, COUNT(*) FROM runs WHERE ended = 0 GROUP BY account`, nil, count(t.Active))
	if err == nil {
		err = each(ctx, s.db, s.rebind(`SELECT topic, COUNT(*) FROM messages WHERE ready <= ? GROUP BY topic`), []any{millis(now)}, count(t.Messages))
	}
	if err != nil {
		return t, fmt.Errorf("counting runs and messages: %w", err)
	}
	return t, nil
}
