package redis_test

import (
	"fmt"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/internal/journal/journaltest"
)

// durabilities are settings of Redis: what is synced before the answer, and what
// is within a second.
var durabilities = []string{"always", "everysec"}

// BenchmarkDo: commands that Redis has acknowledged and this process has carried
// out, by one manager and by three.
func BenchmarkDo(b *testing.B) {
	for _, fsync := range durabilities {
		for _, managers := range []int{1, 3} {
			b.Run(fmt.Sprintf("fsync=%s/managers=%d", fsync, managers), func(b *testing.B) {
				server := testbed.Redis(b, "--appendfsync", fsync)
				journaltest.Benchmark(b, func(tb testing.TB) journaltest.Opener { return opener(tb, server.URL()) }, managers)
			})
		}
	}
}

// BenchmarkBareXAdd is what Redis can do: one XADD for each command.
func BenchmarkBareXAdd(b *testing.B) {
	for _, fsync := range durabilities {
		server := testbed.Redis(b, "--appendfsync", fsync)
		c := goredis.NewClient(&goredis.Options{Addr: server.Address, PoolSize: 64})
		b.Cleanup(func() { _ = c.Close() })
		body := make([]byte, 330)
		for _, callers := range []int{1, 64, 1024} {
			b.Run(fmt.Sprintf("fsync=%s/callers=%d", fsync, callers), func(b *testing.B) {
				journaltest.Measure(b, callers, func(int) error {
					return c.XAdd(b.Context(), &goredis.XAddArgs{Stream: "bare", Values: []any{"b", body}}).Err()
				})
			})
		}
	}
}
