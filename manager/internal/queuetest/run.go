package queuetest

import (
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// Target is what is tested.
type Target struct {
	// Managers is how many there are at a time. Defaults to 1.
	Managers int
	// Store makes an empty store, which ends with tb, and returns what opens it: once
	// for each manager, and again when one is started anew. Nil keeps the state in
	// memory, and no manager is started anew.
	Store func(tb testing.TB) (open func() journal.Log)
	// Keys are those of the store.
	Keys [][]byte
	// OwnClock says that the time is the store's. Otherwise it is the test's, which
	// lets it jump, so that heartbeats stay away and time-outs come.
	OwnClock bool
}

// Operations is the environment variable that says how many random operations each
// [Run] makes, at least. Without it there are 10,000, and a tenth of that with
// -short.
const Operations = "DLITE_QUEUETEST_OPS"

// Run tests the target.
func Run(t *testing.T, target Target) {
	t.Helper()
	target.Managers = max(target.Managers, 1)
	b := &budget{most: operations(t)}
	for histories := 0; !b.spent(); histories++ {
		rapid.Check(t, func(rt *rapid.T) { b.history(t, rt, target) })
	}
	t.Logf("%d operations in %d histories, of %d managers", b.made, b.histories, target.Managers)
}

func operations(t *testing.T) int {
	text := os.Getenv(Operations)
	switch {
	case text == "" && testing.Short():
		return 1_000
	case text == "":
		return 10_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q; it may be a number from 1", Operations, text)
	}
	return n
}

// budget bounds the operations. A history that has failed may be repeated as often
// as it takes to find the shortest one.
type budget struct {
	most, made, histories int
	failed                bool
}

func (b *budget) spent() bool { return b.made >= b.most && !b.failed }

// history is one store's life.
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
			h.did()
		}
	}
	actions := h.actions()
	for range 1 + below(rt, "rounds", 12) {
		rt.Repeat(actions)
	}
	h.finish(rt)
	b.made += h.made
	b.histories++
	whole = true
}
