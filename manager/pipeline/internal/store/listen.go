package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// listenPause is the time between attempts to listen. Without notifications, the processes still
// find messages of others, but later.
const listenPause = time.Second

// listen receives the notifications of other processes until ctx ends.
func (s *Store) listen(ctx context.Context) {
	for ctx.Err() == nil {
		connecting, cancel := s.db.bounded(ctx)
		conn, err := s.db.Conn(connecting)
		cancel()
		if err == nil {
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
		defer func() {
			closing, cancel := s.db.bounded(context.WithoutCancel(ctx))
			defer cancel()
			_ = c.Close(closing)
		}()
		for ctx.Err() == nil {
			// LISTEN again has no effect but to show that the database answers.
			if err := s.hear(ctx, c); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
	_ = conn.Close()
}

// hear listens, and passes on notifications until there were none for a time.
func (s *Store) hear(ctx context.Context, c *pgx.Conn) error {
	asking, cancel := s.db.bounded(ctx)
	_, err := c.Exec(asking, "LISTEN "+channel)
	cancel()
	for err == nil {
		waiting, cancel := s.db.bounded(ctx)
		var n *pgconn.Notification
		n, err = c.WaitForNotification(waiting)
		silent := waiting.Err() != nil
		cancel()
		if err == nil {
			s.Notify(n.Payload)
		} else if silent && !c.IsClosed() {
			return nil
		}
	}
	return err
}
