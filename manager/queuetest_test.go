package manager_test

import (
	"crypto/rand"
	"os"
	"testing"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/internal/queuetest"
)

// Rules Q1 to Q4: random operations on managers and on a model must have the same
// results.

func TestTheQueueInMemory(t *testing.T) {
	t.Parallel()
	once(t)
	queuetest.Run(t, queuetest.Target{})
}

func TestTheQueueOnSQLite(t *testing.T) {
	t.Parallel()
	once(t)
	queuetest.Run(t, queuetest.Target{Keys: storeKeys, Store: func(tb testing.TB) func() journal.Log {
		dir := tb.TempDir()
		return func() journal.Log { return openSQLite(tb, dir) }
	}})
}

func TestTheQueueOnRedis(t *testing.T) {
	t.Parallel()
	once(t)
	r := testbed.Redis(t)
	queuetest.Run(t, queuetest.Target{Managers: 3, Keys: storeKeys, OwnClock: true, Store: func(tb testing.TB) func() journal.Log {
		prefix := rand.Text()
		return func() journal.Log { return openRedis(tb, r.URL(), prefix) }
	}})
}

// once skips a test when all tests run on another store.
func once(t *testing.T) {
	t.Helper()
	if os.Getenv(onStore) != "" {
		t.Skip("it has its own stores")
	}
}
