package redis

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

func (c *Config) setDefaults() {
	if c.Prefix == "" {
		c.Prefix = "dlite:logs:"
	}
	if c.MaxStream <= 0 {
		c.MaxStream = 64 << 20
	}
	if c.MaxTotal <= 0 {
		c.MaxTotal = 1 << 30
	}
	if c.Lease <= 0 {
		c.Lease = 30 * time.Second
	}
}

const (
	// shards is the number of shards. It is part of the layout.
	shards = 16
	// layout is the version of the data in Redis.
	layout = 1
)

// Streams stores the live streams of a log service in Redis, shared with other processes.
type Streams struct {
	cfg    Config
	client goredis.UniversalClient
	news   goredis.UniversalClient

	ctx      context.Context //nolint:containedctx // the background's, ended by Close
	stop     context.CancelFunc
	work     sync.WaitGroup
	watchers watchers
	dialed   dialHook
	follows  bool // reports whether the background work has started; set by OpenStreams

	mu     sync.Mutex // guards the following fields
	totals [shards]total
	owned  [shards]map[string]total // by account
	closed bool
}

var _ livelog.Shared = (*Streams)(nil)

// total contains the totals of a shard, or of an account in a shard, at one version of
// the shard.
type total struct{ streams, size, version int64 }

// OpenStreams connects to Redis and uses the streams that exist there. It fails if
// Redis does not answer, is older than 7, or contains streams of a later version of
// this package.
func OpenStreams(ctx context.Context, cfg Config) (*Streams, error) {
	cfg.setDefaults()
	create, err := cfg.clients(2) // the caller retries too
	if err != nil {
		return nil, fmt.Errorf("log streams in Redis: %w", err)
	}
	// The requests that wait for news have a client of their own, because only its Close
	// interrupts them.
	news := create()
	s := &Streams{cfg: cfg, client: create(), news: news, dialed: make(dialHook, 1)}
	s.dialed.add(news)
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("log streams in Redis: %w", err), s.Close())
	}
	return s, nil
}

func (s *Streams) open(ctx context.Context) error {
	if err := s.suits(ctx); err != nil {
		return err
	}
	key := s.cfg.Prefix + "{0}:v"
	if err := s.client.SetNX(ctx, key, layout, 0).Err(); err != nil {
		return err
	}
	switch v, err := s.client.Get(ctx, key).Int(); {
	case err != nil:
		return err
	case v > layout:
		return fmt.Errorf("the streams at %q are of version %d, which is newer than this program", s.cfg.Prefix, v)
	}
	return s.follow(ctx)
}

// suits checks that Redis is supported.
func (s *Streams) suits(ctx context.Context) error {
	info, err := s.client.Info(ctx, "server", "memory").Result()
	if err != nil {
		return err
	}
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	version := fields["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n < 7 {
		return fmt.Errorf("this is Redis %s; it must be 7 or later", version)
	}
	if policy := fields["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		s.cfg.Logger.Warn().Str("maxmemory_policy", policy).
			Msg("Redis may evict log streams when its memory is full: set maxmemory-policy to noeviction")
	}
	return nil
}

// Ping checks that Redis answers.
func (s *Streams) Ping(ctx context.Context) error { return s.explain(ctx, s.client.Ping(ctx).Err()) }

// Close closes the connections and wakes all watchers. The data in Redis stays.
func (s *Streams) Close() error {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if was {
		return nil
	}
	s.stop()
	if s.follows {
		s.nudge()
	}
	err := errors.Join(s.news.Close(), s.client.Close())
	s.work.Wait()
	s.watchers.close()
	return err
}

func (s *Streams) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// explain converts an error of the client to an error of package logservice.
func (s *Streams) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case s.isClosed():
		return livelog.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case goredis.HasErrorPrefix(err, "OOM"):
		return fmt.Errorf("%w: %w", livelog.ErrFull, err)
	default:
		return fmt.Errorf("%w: %w", livelog.ErrUnavailable, err)
	}
}

// place is the location of a record in Redis.
type place struct {
	id    string // 32 hexadecimal digits
	shard int
}

// placeOf hashes a name to its place.
func placeOf(parts ...string) place {
	sum := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(sum, "%d:%s", len(p), p) // never fails
	}
	b := sum.Sum(nil)
	return place{hex.EncodeToString(b[:16]), int(b[16]) % shards}
}

func placeOfLog(id livelog.ID) place { return placeOf(id.Account, id.Key) }

// key returns the key of a part of a shard, such as "t", or of a record in the part.
func (s *Streams) key(shard int, part string, id ...string) string {
	return s.cfg.Prefix + "{" + strconv.Itoa(shard) + "}:" + strings.Join(append([]string{part}, id...), ":")
}

// keys returns the keys for the scripts of a stream.
func (s *Streams) keys(p place) []string {
	return []string{
		s.key(p.shard, "s", p.id), s.key(p.shard, "l", p.id),
		s.key(p.shard, "t"), s.key(p.shard, "c"), s.key(p.shard, "i"), s.key(p.shard, "a"),
	}
}
