package redis_test

import (
	"crypto/rand"
	"testing"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/journal"
	"github.com/delegate-io/dlite/manager/journal/journaltest"
	"github.com/delegate-io/dlite/manager/journal/redis"
)

func opener(tb testing.TB, url string) journaltest.Opener {
	cfg := redis.Config{URL: url, Prefix: rand.Text()}
	return func() (journal.Log, error) { return redis.Open(tb.Context(), cfg) }
}

// SPEC Q7.
func TestLog(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	journaltest.Run(t, func(tb testing.TB) journaltest.Opener { return opener(tb, server.URL()) })
}
