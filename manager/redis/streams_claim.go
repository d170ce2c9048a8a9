package redis

import (
	"context"
	"crypto/rand"
	_ "embed" // the script
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

//go:embed streams/hold.lua
var hold string

var holdScript = goredis.NewScript(hold)

var errLost = errors.New("another manager may archive this log by now: Redis was away for too long")

// Claim locks the archive of a log for this process until release. If the process dies,
// the lock ends after Config.Lease.
func (s *Streams) Claim(ctx context.Context, id livelog.ID) (held context.Context, release func(), err error) {
	if s.isClosed() {
		return nil, nil, livelog.ErrClosed
	}
	p, token := placeOfLog(id), rand.Text()
	key := s.key(p.shard, "x", p.id)
	began := time.Now()
	ok, err := s.client.SetNX(ctx, key, token, s.cfg.Lease).Result()
	if err == nil && !ok {
		// The answer may have been lost and the client may have repeated the request:
		// then the lock is ours.
		var owner string
		owner, err = s.client.Get(ctx, key).Result()
		if ok = owner == token; errors.Is(err, goredis.Nil) {
			err = nil // the other lock has just ended
		}
	}
	if err != nil {
		return nil, nil, s.explain(ctx, err)
	}
	if !ok {
		return nil, nil, livelog.ErrClaimed
	}
	held, lose := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.prolong(held, key, token, began.Add(s.cfg.Lease), lose)
	}()
	return held, func() {
		lose(nil)
		<-done
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Lease)
		defer cancel()
		_ = holdScript.Run(ctx, s.client, []string{key}, token, 0).Err() // otherwise the lock expires
	}, nil
}

// prolong extends a claim that is valid until a time, until held ends.
func (s *Streams) prolong(held context.Context, key, token string, until time.Time, lose func(error)) {
	tick := time.NewTicker(s.cfg.Lease / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-held.Done():
			return
		}
		now := time.Now()
		// The last quarter of the lease allows for differences between the clocks.
		ctx, cancel := context.WithDeadline(held, until.Add(-s.cfg.Lease/4))
		n, err := holdScript.Run(ctx, s.client, []string{key}, token, s.cfg.Lease.Milliseconds()).Int()
		cancel()
		switch {
		case err == nil && n == 1:
			until = now.Add(s.cfg.Lease)
		case err == nil || !time.Now().Before(until.Add(-s.cfg.Lease/4)):
			lose(errLost)
			return
		}
	}
}

// Spend records until a time that a name was used.
func (s *Streams) Spend(ctx context.Context, name string, until time.Time) error {
	if s.isClosed() {
		return livelog.ErrClosed
	}
	ttl := max(time.Until(until), time.Second)
	p := placeOf(name)
	return s.explain(ctx, s.client.Set(ctx, s.key(p.shard, "u", p.id), 1, ttl).Err())
}

// Spent reports whether a name was used.
func (s *Streams) Spent(ctx context.Context, name string) (bool, error) {
	if s.isClosed() {
		return false, livelog.ErrClosed
	}
	p := placeOf(name)
	n, err := s.client.Exists(ctx, s.key(p.shard, "u", p.id)).Result()
	return n > 0, s.explain(ctx, err)
}
