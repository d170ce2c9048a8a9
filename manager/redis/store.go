package redis

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

const (
	// readFor is how long a read waits for an entry. If no process writes, a journal
	// detects within this time that the log lost its end.
	readFor = time.Second
	// closeFor is how long Close waits for active reads to end.
	closeFor = time.Second
	// readEntries is the maximum number of entries in one read.
	readEntries = 64
	// leadFor is the lease for saving the state. If its holder dies, another process
	// may take over when it ends.
	leadFor = 30 * time.Second
	// keepChunks is how long the chunks of an abandoned state stay.
	keepChunks = time.Hour
	// keepOrigins is how long a repeated batch is recognised. A journal stops repeating
	// a batch much earlier.
	keepOrigins = 24 * time.Hour
)

var (
	//go:embed store/append.lua
	appendLua string
	//go:embed store/header.lua
	headerLua string
	//go:embed store/end.lua
	endLua string
	//go:embed store/commit.lua
	commitLua string
	//go:embed store/lead.lua
	leadLua string

	appendScript = goredis.NewScript(appendLua)
	headerScript = goredis.NewScript(headerLua)
	endScript    = goredis.NewScript(endLua)
	commitScript = goredis.NewScript(commitLua)
	leadScript   = goredis.NewScript(leadLua)
)

// Store is a journal.Log in Redis, shared with other processes. It is safe for
// concurrent use.
type Store struct {
	client goredis.UniversalClient
	prefix string

	mu      sync.Mutex
	closed  bool
	reading int
	unread  chan struct{} // closed when the last read has ended after Close
}

// OpenStore connects to Redis. It fails when Redis does not answer or is older than 7.
func OpenStore(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = "dlite:journal"
	}
	if strings.ContainsAny(cfg.Prefix, "{}") {
		return nil, fmt.Errorf("opening a log in Redis: the prefix %q has a brace", cfg.Prefix)
	}
	if cfg.MaxStream != 0 || cfg.MaxTotal != 0 || cfg.Lease != 0 {
		return nil, errors.New("opening a log in Redis: MaxStream, MaxTotal and Lease are for OpenStreams")
	}
	create, err := cfg.clients(-1) // the journal retries, and logs the reason
	if err != nil {
		return nil, fmt.Errorf("opening a log in Redis: %w", err)
	}
	l := &Store{client: create(), prefix: "{" + cfg.Prefix + "}:", unread: make(chan struct{})}
	if err := l.suits(ctx, cfg.Logger); err != nil {
		return nil, errors.Join(fmt.Errorf("opening a log in Redis: %w", err), l.Close())
	}
	return l, nil
}

// suits checks that Redis is supported, and logs settings that endanger the log.
func (l *Store) suits(ctx context.Context, log zerolog.Logger) error {
	info, err := l.client.Info(ctx, "server", "memory", "persistence").Result()
	if err != nil {
		return explain(err)
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
		log.Warn().Str("maxmemory_policy", policy).
			Msg("Redis may evict the log when its memory is full: set maxmemory-policy to noeviction")
	}
	if fields["aof_enabled"] == "0" {
		log.Warn().Msg("a crash of Redis loses log entries that it has not saved: set appendonly to yes, and appendfsync to always or everysec")
	}
	return nil
}

// Close closes the connections. The data in Redis stays.
func (l *Store) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	if l.reading == 0 {
		close(l.unread)
	}
	l.mu.Unlock()
	l.wakeReaders()
	return l.client.Close()
}

// wakeReaders ends the reads that wait for an entry, if Redis answers. Other reads end
// with their connection.
func (l *Store) wakeReaders() {
	ctx, cancel := context.WithTimeout(context.Background(), closeFor)
	defer cancel()
	for {
		select {
		case <-l.unread:
			return
		case <-ctx.Done():
			return
		default:
		}
		_ = l.client.XAdd(ctx, &goredis.XAddArgs{Stream: l.key("wake"), MaxLen: 1, Values: []string{"", ""}}).Err() // see above
		t := time.NewTimer(closeFor / 50)
		select {
		case <-l.unread:
		case <-t.C: // a read may just have begun
		}
		t.Stop()
	}
}

// read registers a read. The caller must call the returned function when the read has
// ended.
func (l *Store) read() (func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, journal.ErrClosed
	}
	l.reading++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.reading--; l.reading == 0 && l.closed {
			close(l.unread)
		}
	}, nil
}

// Shared returns true: other processes append too.
func (l *Store) Shared() bool { return true }

// Ping checks that Redis answers.
func (l *Store) Ping(ctx context.Context) error { return explain(l.client.Ping(ctx).Err()) }

func (l *Store) key(name string) string { return l.prefix + name }

// passing contains the prefixes of temporary errors: Redis is starting, is changing its
// role, or has a problem that an operator can fix.
var passing = []string{
	"LOADING", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "NOREPLICAS", "MISCONF",
	"NOAUTH", "WRONGPASS", "NOPERM", "UNKILLABLE", "NOSCRIPT",
}

// explain converts an error of the client to an error of package journal.
func explain(err error) error {
	var answer goredis.Error
	var network *net.OpError
	switch {
	case errors.As(err, &network): // first, because a slow dial reports the end of a context too
		return fmt.Errorf("%w: %w", journal.ErrRetry, err)
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, goredis.ErrClosed):
		return journal.ErrClosed
	case !errors.As(err, &answer):
		return fmt.Errorf("%w: %w", journal.ErrRetry, err)
	case goredis.HasErrorPrefix(err, "OTHERLOG"):
		return fmt.Errorf("%w: %w", journal.ErrOtherLog, err)
	case goredis.HasErrorPrefix(err, "OOM"):
		return fmt.Errorf("redis is full and wrote nothing: give it more memory: %w", err)
	case slices.ContainsFunc(passing, func(p string) bool { return goredis.HasErrorPrefix(err, p) }):
		return fmt.Errorf("%w: %w", journal.ErrRetry, err)
	}
	return err
}
