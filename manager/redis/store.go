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
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// StoreConfig configures [OpenStore]. URL or Client is required.
type StoreConfig struct {
	// URL names one Redis: redis://user:password@host:port/db, rediss:// for TLS,
	// or unix:///path.
	URL string
	// Client makes the client in place of URL, for a cluster, sentinels, or settings
	// that a URL does not know. Close closes it.
	Client func() goredis.UniversalClient
	// Prefix is what all keys begin with, within a hash tag. Logs with different
	// ones have nothing to do with each other. Defaults to "dlite:journal".
	Prefix string
	// Logger tells of settings of Redis that endanger the log. Defaults to nothing.
	Logger zerolog.Logger
}

const (
	// readFor is how long a read waits for an entry, and so how soon it is noticed
	// that the log lost its end while nobody writes.
	readFor = time.Second
	// closeFor is how long Close waits for a read to end by itself.
	closeFor = time.Second
	// readEntries is how many entries are read at once.
	readEntries = 64
	// leadFor is after which time another process goes on for one that died while
	// it saved the state.
	leadFor = 30 * time.Second
	// keepChunks is how long the parts of a state that nobody goes on saving stay.
	keepChunks = time.Hour
	// keepOrigins is for how long a batch that was sent again is recognised. A
	// journal gives up long before.
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
	unread  chan struct{} // closed when nobody reads any more
}

// OpenStore connects to Redis. It fails when Redis does not answer or is older than 7.
func OpenStore(ctx context.Context, cfg StoreConfig) (*Store, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = "dlite:journal"
	}
	if strings.ContainsAny(cfg.Prefix, "{}") {
		return nil, fmt.Errorf("opening a log in Redis: the prefix %q has a brace", cfg.Prefix)
	}
	client, err := cfg.client()
	if err != nil {
		return nil, fmt.Errorf("opening a log in Redis: %w", err)
	}
	l := &Store{client: client, prefix: "{" + cfg.Prefix + "}:", unread: make(chan struct{})}
	if err := l.suits(ctx, cfg.Logger); err != nil {
		return nil, errors.Join(fmt.Errorf("opening a log in Redis: %w", err), l.Close())
	}
	return l, nil
}

func (c *StoreConfig) client() (goredis.UniversalClient, error) {
	if c.Client != nil {
		return c.Client(), nil
	}
	if c.URL == "" {
		return nil, errors.New("neither URL nor Client is set")
	}
	o, err := goredis.ParseURL(c.URL)
	if err != nil {
		// The error may quote the URL, and with it the password.
		return nil, errors.New("the URL is none that a client knows, such as redis://user:password@host:port/0")
	}
	o.ContextTimeoutEnabled = true
	o.MaxRetries, o.DialerRetries = -1, 1 // the journal tries again, and tells why
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return goredis.NewClient(o), nil
}

// suits tells whether Redis can do what we need, and warns of what it may lose.
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
			Msg("The log: Redis may evict it when it is full: set maxmemory-policy to noeviction")
	}
	if fields["aof_enabled"] == "0" {
		log.Warn().Msg("The log: what Redis did not save is lost when it dies: set appendonly to yes, and appendfsync to always or everysec")
	}
	return nil
}

// Close closes the connections. What is in Redis stays.
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

// wakeReaders ends reads that wait for an entry, as far as Redis answers. The
// others end with their connection.
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
		case <-t.C: // it may just have begun
		}
		t.Stop()
	}
}

// read says that somebody reads, and returns what says that it has ended.
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

// Shared says that other processes append, too.
func (l *Store) Shared() bool { return true }

// Ping asks Redis for a sign of life.
func (l *Store) Ping(ctx context.Context) error { return explain(l.client.Ping(ctx).Err()) }

func (l *Store) key(name string) string { return l.prefix + name }

// passing are the errors of a Redis that starts, is about to change its part, or
// cannot be used in a way that somebody may mend.
var passing = []string{
	"LOADING", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "NOREPLICAS", "MISCONF",
	"NOAUTH", "WRONGPASS", "NOPERM", "UNKILLABLE", "NOSCRIPT",
}

// explain makes an error one of the journal's.
func explain(err error) error {
	var answer goredis.Error
	var network *net.OpError
	switch {
	case errors.As(err, &network): // also where it says that it is the end of a context, as when dialling takes too long
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
		return fmt.Errorf("redis is full, nothing was written: give it more memory: %w", err)
	case slices.ContainsFunc(passing, func(p string) bool { return goredis.HasErrorPrefix(err, p) }):
		return fmt.Errorf("%w: %w", journal.ErrRetry, err)
	}
	return err
}
