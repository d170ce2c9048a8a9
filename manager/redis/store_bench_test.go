package redis_test

import (
	"fmt"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/internal/journal/journaltest"
)

// durabilities are values of appendfsync: sync before each answer, or every second.
var durabilities = []string{"always", "everysec"}

// BenchmarkDo measures commands that Redis has acknowledged and this process has
// applied, with one manager and with three.
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

// BenchmarkBareXAdd measures Redis: one XADD for each command.
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
