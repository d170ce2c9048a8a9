package redis_test

import (
	"context"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/redis"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(victimRedis); url != "" {
		victim(url) // never returns
	}
	goredis.SetLogger(silent{}) // the tests cause errors on purpose
	goleak.VerifyTestMain(m)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

var prefixes atomic.Int64

// prefix returns a prefix that no other test uses.
func prefix() string { return "test" + strconv.FormatInt(prefixes.Add(1), 10) + ":" }

func openStreams(t testing.TB, r *testbed.RedisServer, cfg redis.Config) *redis.Streams {
	t.Helper()
	cfg.URL = r.URL()
	s, err := redis.OpenStreams(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}
