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

// Rule G1: the same for perpetual tasks.
func TestThePerpetualTasksInMemory(t *testing.T) {
	t.Parallel()
	once(t)
	queuetest.RunPerpetual(t, queuetest.Target{})
}

func TestTheQueueOnSQLite(t *testing.T) {
	t.Parallel()
	once(t)
	queuetest.Run(t, onFiles())
}

func TestThePerpetualTasksOnSQLite(t *testing.T) {
	t.Parallel()
	once(t)
	queuetest.RunPerpetual(t, onFiles())
}

func onFiles() queuetest.Target {
	return queuetest.Target{Keys: storeKeys, Store: func(tb testing.TB) func() journal.Log {
		tb.Helper()
		dir := tb.TempDir()
		return func() journal.Log { return openSQLite(tb, dir) }
	}}
}

func TestTheQueueOnRedis(t *testing.T) {
	t.Parallel()
	once(t)
	queuetest.Run(t, onRedis(t))
}

// Leases do not end here: the clock of Redis cannot be moved.
func TestThePerpetualTasksOnRedis(t *testing.T) {
	t.Parallel()
	once(t)
	queuetest.RunPerpetual(t, onRedis(t))
}

func onRedis(t *testing.T) queuetest.Target {
	t.Helper()
	r := testbed.Redis(t)
	return queuetest.Target{Managers: 3, Keys: storeKeys, OwnClock: true, Store: func(tb testing.TB) func() journal.Log {
		tb.Helper()
		prefix := rand.Text()
		return func() journal.Log { return openRedis(tb, r.URL(), prefix) }
	}}
}

// once skips a test when all tests run on another store.
func once(t *testing.T) {
	t.Helper()
	if os.Getenv(onStore) != "" {
		t.Skip("it has its own stores")
	}
}
