package queue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// With many tags and many requirements, and works that leave the queue from anywhere,
// each decision is the one of rules Q2 and Q3.
func TestTheIndexOfManyRequirements(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // the same each time
	some := func(n int) (out []string) {
		for range r.IntN(n) {
			out = append(out, fmt.Sprint("t", r.IntN(90)))
		}
		return out
	}
	b := newBench(t, Config{MaxFinished: 5, HeartbeatTimeout: 100 * time.Hour, AcquireTimeout: 20 * time.Hour})
	ids := []string{}
	for i := range 8 {
		ids = append(ids, b.add(fmt.Sprint("d", i), 1, some(60)...))
	}
	a := b.accounts[acc]
	for i := range 6000 {
		id := fmt.Sprint("s", i)
		require.NoError(t, b.Submit(acc, &Work{
			ID: id, Stage: i%5 > 0, Selectors: some(4), Priority: Priority(r.IntN(2)), Variants: one(id, "init"),
			QueueTimeout: time.Duration(r.IntN(10)) * time.Hour,
		}))
		if i > 40 { // few works wait at a time: the comparison looks at each of them
			old := fmt.Sprint("s", i-r.IntN(40))
			if a.tasks[old] != nil {
				require.NoError(t, b.Abort(acc, old, "because"))
				if s := a.works[old]; s != nil && s.first.State == done {
					require.NoError(t, b.Release(acc, old))
				}
			}
		}
		switch d := ids[r.IntN(len(ids))]; r.IntN(8) {
		case 0:
			require.NoError(t, b.Heartbeat(acc, Registration{ID: d, Tags: some(60)}))
		case 1:
			b.advance(time.Duration(r.IntN(20)) * time.Minute)
			require.NoError(t, b.Heartbeat(acc, Registration{ID: d}))
		default:
			for _, id := range b.offers(d) {
				b.acquire(d, id)
				b.complete(d, id)
				if a.works[id] != nil {
					require.NoError(t, b.Release(acc, id))
				}
			}
		}
		if i%100 == 0 {
			checkIndex(t, a)
		}
		b.Events()
	}
	assert.LessOrEqual(t, len(a.requirements), len(a.works), "requirements without works are dropped")
}

// The queue keeps no reference to a delegate that has left, also if the account has no work of a kind.
func TestNothingRefersToADelegateThatHasLeft(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.stage("s", Normal, "d")
	b.add("d", 1)
	require.NoError(t, b.Unregister(acc, b.holder("s")))
	b.add("e", 1)
	b.advance(2 * time.Hour) // it is lost
	b.advance(2 * time.Hour) // and forgotten
	for _, touched := range b.accounts[acc].touched {
		assert.Empty(t, touched)
		assert.Empty(t, slices.DeleteFunc(touched[:cap(touched)], func(d *delegate) bool { return d == nil }))
	}
	assert.Empty(t, b.accounts[acc].tags["d"].holders)
}

// Works that need the same have one requirement, however they spell it. Works that do
// not need the same have not.
func TestOneRequirementForOneNeed(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	for i, selectors := range [][]string{{"a", "b"}, {"B ", "a"}, {"b", "a", "A"}} {
		b.stage(fmt.Sprint("s", i), Priority(i%2), selectors...)
	}
	a := b.accounts[acc]
	assert.Len(t, a.requirements, 1)
	assert.Equal(t, []string{"B ", "a"}, a.works["s1"].Selectors, "people see the spelling of the work")
	b.single("t", "a", "b")
	b.stage("other", Normal, "a b")
	b.stage("quoted", Normal, `a" "b`)
	require.NoError(t, b.Submit(acc, &Work{ID: "types", Stage: true, Selectors: []string{"a", "b"}, Variants: one("types", "other")}))
	assert.Len(t, a.requirements, 5)
	reasons := b.Places(acc)
	b.add("d", 1)
	for id, spelled := range map[string]string{"s0": `"a", "b"`, "s1": `"B ", "a"`, "s2": `"b", "a", "A"`} {
		assert.Equal(t, "no delegate is registered: start one", reasons[id].Reason)
		assert.Contains(t, b.Places(acc)[id].Reason, spelled)
	}
}

// A requirement waits at its rarest selector. It moves there with its next work if another
// selector has become the rarest.
func TestARequirementWaitsAtItsRarestSelector(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	for _, id := range []string{"first", "second"} {
		b.stage(id, Normal, "any", "gpu")
	}
	for i := range 10 {
		b.add(fmt.Sprint("d", i), 1, "any")
	}
	a := b.accounts[acc]
	require.Equal(t, "any", a.works["first"].requirement.tag.name)
	require.Equal(t, []string{"first"}, b.offers(b.add("g", 1, "any", "gpu")))
	assert.Equal(t, "gpu", a.works["second"].requirement.tag.name)
	assert.Zero(t, a.tags["any"].waiters[stages].size)
	checkIndex(t, a)
}

// Rule Q4: a delegate that missed an offer of a work is the last choice for it, however
// free it is.
func TestADelegateThatMissedAnOfferComesLast(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{AcquireTimeout: 10 * time.Second, HeartbeatTimeout: time.Hour})
	silent, other := b.add("silent", 0), b.add("other", 1)
	b.stage("busy", Normal, "other")
	b.acquire(other, "busy")
	b.stage("s", Normal)
	require.Equal(t, silent, b.holder("s"))
	b.advance(10 * time.Second)
	require.Equal(t, silent, b.holder("s"), "the other one has no room")
	third := b.add("third", 1)
	b.advance(10 * time.Second)
	assert.Equal(t, third, b.holder("s"))
	fourth := b.add("fourth", 1)
	require.NoError(t, b.Heartbeat(acc, Registration{ID: third, Draining: true}))
	assert.Equal(t, fourth, b.holder("s"), "it has less room than the delegate that missed the offer")
	require.NoError(t, b.Heartbeat(acc, Registration{ID: fourth, Draining: true}))
	assert.Equal(t, silent, b.holder("s"))
}

// If all delegates missed the offer, the best one gets it, but not the one that missed it
// last.
func TestTheBestOfThoseThatMissedAnOffer(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{AcquireTimeout: 10 * time.Second, HeartbeatTimeout: time.Hour})
	best, second, third := b.add("best", 3), b.add("second", 2), b.add("third", 1)
	b.stage("s", Normal)
	for _, want := range []string{best, second, third, best, second, best, second} {
		require.Equal(t, want, b.holder("s"))
		checkIndex(t, b.accounts[acc])
		b.advance(10 * time.Second)
	}
}

// A delegate may repeat the answer that hands a task back: its first response may have
// been lost.
func TestAnAnswerThatHandsBackMayComeTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	d := b.add("d", 1)
	b.stage("s", Normal)
	b.acquire(d, "s")
	for range 2 {
		require.NoError(t, b.Complete(acc, d, "s", Answer{Outcome: Failure, Retry: true}))
	}
	other := b.add("other", 1)
	b.acquire(other, "s")
	require.NoError(t, b.Complete(acc, d, "s", Answer{Outcome: Success}), "too late, and no harm")
	s, err := b.Task(acc, "s")
	require.NoError(t, err)
	assert.Zero(t, s.Ended)
}

// A heartbeat may change the types, the tags or the name of a delegate alone.
func TestAHeartbeatChangesTheWorkThatADelegateMayHave(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]Registration{
		"types": {Types: []string{"init"}}, "tags": {Tags: []string{"a", "b"}}, "name": {Name: "b", Types: []string{"init"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Config{})
			d := b.Register(acc, Registration{Name: "d", Tags: []string{"a"}, Types: []string{"init"}})
			selectors := []string{"a", "b"}
			if name == "types" {
				require.NoError(t, b.Heartbeat(acc, Registration{ID: d, Types: []string{"other"}}))
				selectors = nil
			}
			b.stage("s", Normal, selectors...)
			require.Empty(t, b.offers(d))
			change.ID = d
			require.NoError(t, b.Heartbeat(acc, change))
			assert.Equal(t, []string{"s"}, b.offers(d))
		})
	}
}

// A place counts the works of all requirements and priorities that are before the work,
// also after works have left the queue from anywhere.
func TestAPlaceInALongQueue(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 4)) //nolint:gosec // the same each time
	b := newBench(t, Config{})
	for i := range 5000 {
		b.stage(fmt.Sprint("s", i), Priority(i%50/49), []string{"a", "b"}[i%10/9])
	}
	ids := slices.Collect(maps.Keys(b.accounts[acc].works))
	slices.Sort(ids)
	r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for round := range 6 {
		for _, id := range ids[round*700 : (round+1)*700] {
			require.NoError(t, b.Abort(acc, id, ""))
			require.NoError(t, b.Release(acc, id))
		}
		waits := slices.SortedFunc(waitingWorks(b.accounts[acc]), (*work).compare)
		require.Len(t, waits, 5000-(round+1)*700)
		for i := 0; i < len(waits); i += 1 + len(waits)/100 {
			require.Equal(t, i+1, b.number(waits[i].ID))
		}
	}
}

// The memory of a stage that waits, without its id, its task and its variants. The test
// is not parallel: it measures the heap.
func TestWaitingStagesAreSmall(t *testing.T) {
	const waiting = 100_000
	q := New(Config{})
	works := make([]*Work, waiting)
	for i := range works {
		id := fmt.Sprint("s", i)
		works[i] = &Work{
			ID: id, Stage: true, Selectors: []string{"linux", strings.Repeat("x", i%10)}, QueueTimeout: time.Hour,
			Variants: one(id, "init"),
		}
	}
	before := heapInUse()
	for _, w := range works {
		require.NoError(t, q.Submit(acc, w))
	}
	each := (heapInUse() - before) / waiting
	t.Logf("%d bytes for a stage that waits", each)
	assert.Less(t, each, 500)
	runtime.KeepAlive(works)
	require.Len(t, q.accounts[acc].works, waiting)
}
