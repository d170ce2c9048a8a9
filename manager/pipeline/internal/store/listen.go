package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
)

// listenPause is the time between attempts to listen. Without notifications, the processes still
// find messages of others, but later.
const listenPause = time.Second

// listen receives the notifications of other processes until ctx ends.
func (s *Store) listen(ctx context.Context) {
	for ctx.Err() == nil {
		if conn, err := s.db.Conn(ctx); err == nil {
			s.receive(ctx, conn)
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenPause):
		}
	}
}

func (s *Store) receive(ctx context.Context, conn *sql.Conn) {
	// A connection that has listened must not return to the pool.
	_ = conn.Raw(func(driver any) error {
		c := driver.(*stdlib.Conn).Conn()
		defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
		if _, err := c.Exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
		for {
			n, err := c.WaitForNotification(ctx)
			if err != nil {
				return err
			}
			s.Notify(n.Payload)
		}
	})
	_ = conn.Close()
}
