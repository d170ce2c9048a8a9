package queuetest

import (
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// Target describes the managers under test.
type Target struct {
	// Managers is the number of managers that run at a time. Defaults to 1.
	Managers int
	// Store creates an empty store, which ends with tb. It returns a function that
	// opens the store, for each manager and for each restart. Nil keeps the state in
	// memory, and managers are not restarted.
	Store func(tb testing.TB) (open func() journal.Log)
	// Keys are the store's keys.
	Keys [][]byte
	// OwnClock means that the store has its own clock. Otherwise the test controls
	// the time, so that heartbeats stop and time-outs pass.
	OwnClock bool
}

// Operations is the environment variable with the least number of random operations
// of each [Run]. The default is 2,000, and half of that with -short.
const Operations = "DLITE_QUEUETEST_OPS"

// Run tests the target.
func Run(t *testing.T, target Target) {
	t.Helper()
	target.Managers = max(target.Managers, 1)
	b := &budget{most: operations(t)}
	for !b.spent() {
		rapid.Check(t, func(rt *rapid.T) { b.history(t, rt, target) })
		b.failed = false // a recorded failure that no longer applies breaks off too
	}
	t.Logf("%d operations in %d histories, of %d managers", b.made, b.histories, target.Managers)
}

func operations(t *testing.T) int {
	text := os.Getenv(Operations)
	switch {
	case text == "" && testing.Short():
		return 1_000
	case text == "":
		return 2_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q; it must be a number from 1", Operations, text)
	}
	return n
}

// budget bounds the number of operations. Rapid may repeat a failed history as often
// as it needs to find the shortest one.
type budget struct {
	most, made, histories int
	failed                bool
}

func (b *budget) spent() bool { return b.made >= b.most && !b.failed }

// history runs one history on one store.
func (b *budget) history(t *testing.T, rt *rapid.T, target Target) {
	if b.spent() {
		return
	}
	h := start(t, rt, target)
	defer h.close()
	whole := false
	defer func() { b.failed = b.failed || !whole }()
	for _, h.in = range h.accounts {
		for range 2 {
			h.register(rt)
			h.afterOperation()
		}
	}
	actions := h.actions()
	for range 1 + below(rt, "rounds", 12) {
		rt.Repeat(actions)
	}
	h.finish(rt)
	b.made += h.operationCount
	b.histories++
	whole = true
}
