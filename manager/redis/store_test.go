package redis_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/internal/journal/journaltest"
	"github.com/delegate-io/dlite/manager/redis"
)

func opener(tb testing.TB, url string) journaltest.Opener {
	cfg := redis.Config{URL: url, Prefix: rand.Text()}
	return func() (journal.Log, error) { return redis.OpenStore(tb.Context(), cfg) }
}

// Rule Q7.
func TestStore(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	journaltest.Run(t, func(tb testing.TB) journaltest.Opener { return opener(tb, server.URL()) })
}

// All keys are on one node of a cluster.
func TestStoreInACluster(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t, "--cluster-enabled", "yes")
	plain := client(t, server)
	require.NoError(t, plain.Do(t.Context(), "cluster", "addslotsrange", 0, 16383).Err())
	require.Eventually(t, func() bool {
		info, err := plain.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	}, time.Minute, time.Millisecond)
	cfg := redis.Config{Prefix: rand.Text(), Client: func() goredis.UniversalClient {
		return goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{server.Address}})
	}}
	open := func() (journal.Log, error) { return redis.OpenStore(t.Context(), cfg) }
	a, b := journaltest.Open(t, open), journaltest.Open(t, open)
	a.AddMany(t, "a", 50)
	require.NoError(t, a.Compact(t.Context()))
	b.AddMany(t, "b", 50)
	require.NoError(t, b.Compact(t.Context()))
	journaltest.Agree(t, a, b, journaltest.Open(t, open))
}
