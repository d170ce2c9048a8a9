package redis_test

import (
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/logservice/redis"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(victimRedis); url != "" {
		victim(url) // and never comes back
	}
	goleak.VerifyTestMain(m)
}

var prefixes atomic.Int64

// prefix is one that no other test uses.
func prefix() string { return "test" + strconv.FormatInt(prefixes.Add(1), 10) + ":" }

func open(t testing.TB, r *testbed.RedisServer, cfg redis.Config) *redis.Streams {
	t.Helper()
	cfg.URL = r.URL()
	s, err := redis.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}
