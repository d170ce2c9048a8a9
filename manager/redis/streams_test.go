package redis_test

import (
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/internal/livelog"
	"github.com/delegate-io/dlite/manager/internal/logservicetest"
	"github.com/delegate-io/dlite/manager/redis"
)

func TestStreams(t *testing.T) {
	t.Parallel()
	r := testbed.Redis(t, "--appendfsync", "no")
	logservicetest.Run(t, func(*testing.T) logservicetest.Opener {
		cfg := redis.Config{URL: r.URL(), Prefix: prefix()}
		return func() (livelog.Streams, error) { return redis.OpenStreams(t.Context(), cfg) }
	})
}

// A cluster with a single node also refuses a script whose keys are in different slots.
func TestStreamsInACluster(t *testing.T) {
	t.Parallel()
	r := testbed.Redis(t, "--appendfsync", "no", "--cluster-enabled", "yes")
	plain := goredis.NewClient(&goredis.Options{Addr: r.Address})
	defer func() { _ = plain.Close() }()
	require.NoError(t, plain.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	for ok := false; !ok; {
		info, err := plain.ClusterInfo(t.Context()).Result()
		require.NoError(t, err)
		ok = strings.Contains(info, "cluster_state:ok")
	}
	logservicetest.Run(t, func(*testing.T) logservicetest.Opener {
		cfg := redis.Config{Prefix: prefix(), Client: func() goredis.UniversalClient {
			return goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{r.Address}})
		}}
		return func() (livelog.Streams, error) { return redis.OpenStreams(t.Context(), cfg) }
	})
}
