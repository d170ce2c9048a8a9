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
	"pgregory.net/rapid"
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
	checked := checkDecisions(t, b.Queue)
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
				if s := a.works[old]; s != nil && s.first.state == done {
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
	assert.Greater(t, checked.decisions, 10_000)
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
	assert.Equal(t, []string{"B ", "a"}, *a.works["s1"].Selectors, "people see the spelling of the work")
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

// A requirement waits in the shard of its rarest selector, also when another selector
// has become the rarest.
func TestARequirementWaitsAtItsRarestSelector(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.stage("first", Normal, "linux", "gpu")
	for i := range 10 {
		b.add(fmt.Sprint("d", i), 1, "linux")
	}
	b.add("g", 1, "gpu")
	for i := range 1024 {
		b.stage(fmt.Sprint("s", i), Normal, "linux", "gpu")
	}
	a := b.accounts[acc]
	assert.Equal(t, "gpu", a.works["first"].requirement.shard.tag.name)
	checkIndex(t, a)
	assert.Zero(t, a.tags["linux"].users)
	if s := a.tags["linux"].shards[stages]; s != nil {
		assert.Zero(t, s.waiters.size())
	}
}

// SPEC Q4: one that let a work lie is the last choice for it, however free it is,
// and is one when the others cannot.
func TestWhoLetItLieComesLast(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{AcquireTimeout: 10 * time.Second, HeartbeatTimeout: time.Hour})
	checkDecisions(t, b.Queue)
	deaf, other := b.add("deaf", 0), b.add("other", 1)
	b.stage("busy", Normal, "other")
	b.acquire(other, "busy")
	b.stage("s", Normal)
	require.Equal(t, deaf, b.holder("s"))
	b.advance(10 * time.Second)
	require.Equal(t, deaf, b.holder("s"), "the other one has no room")
	third := b.add("third", 1)
	b.advance(10 * time.Second)
	assert.Equal(t, third, b.holder("s"))
	fourth := b.add("fourth", 1)
	require.NoError(t, b.Heartbeat(acc, Registration{ID: third, Draining: true}))
	assert.Equal(t, fourth, b.holder("s"), "it has less room than the deaf one")
	require.NoError(t, b.Heartbeat(acc, Registration{ID: fourth, Draining: true}))
	assert.Equal(t, deaf, b.holder("s"))
}

// Of several that all let it lie, the best gets it.
func TestTheBestOfThoseWhoLetItLie(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{AcquireTimeout: 10 * time.Second, HeartbeatTimeout: time.Hour})
	checked := checkDecisions(t, b.Queue)
	for i := range 6 {
		b.add(fmt.Sprint("d", i), 1+i%3)
	}
	b.stage("s", Normal)
	for range 30 {
		b.advance(10 * time.Second)
	}
	assert.Greater(t, checked.decisions, 30)
}

// What a delegate hands back it may answer again: its answer may have been lost.
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

// A heartbeat may change each of what a delegate is by itself.
func TestAHeartbeatChangesWhatADelegateMayHave(t *testing.T) {
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

// A sorted list is in order and has full chunks, whatever enters and leaves it.
func TestASortedList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s sorted[waiting]
		want := map[uint64]bool{}
		most := rapid.SampledFrom([]uint64{10, 200, 1000}).Draw(t, "most")
		for i := range rapid.Uint64Range(0, most).Draw(t, "filled") { // in order, as works arrive
			s.insert(waiting{turn: i})
			want[i] = true
		}
		step := func(t *rapid.T) uint64 { return rapid.Uint64Range(0, most).Draw(t, "turn") }
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				if x := step(t); !want[x] {
					s.insert(waiting{turn: x})
					want[x] = true
				}
			},
			"remove": func(t *rapid.T) {
				x := step(t)
				s.remove(waiting{turn: x})
				delete(want, x)
			},
			"remove many": func(t *rapid.T) {
				from, to := step(t), step(t)
				for x := from; x < to; x++ {
					s.remove(waiting{turn: x})
					delete(want, x)
				}
			},
			"": func(t *rapid.T) {
				checkSorted(t, s)
				turns := slices.Sorted(maps.Keys(want))
				require.Equal(t, len(turns), s.size())
				i := 0
				for x := range s.all() {
					require.Equal(t, turns[i], x.turn)
					i++
				}
				first, ok := s.first()
				require.Equal(t, len(turns) > 0, ok)
				if ok {
					require.Equal(t, turns[0], first.turn)
				}
				x := step(t)
				rank, _ := slices.BinarySearch(turns, x)
				require.Equal(t, rank, s.rank(waiting{turn: x}))
				for c := range len(s.chunks) - 1 {
					require.Greater(t, len(s.chunks[c])+len(s.chunks[c+1]), chunkSize/2, "chunks are merged")
				}
			},
		})
	})
}

// testAlarm has a deadline and nothing else.
type testAlarm struct {
	number int
	at     instant
	fire   func(now time.Time)
}

func (a *testAlarm) deadline() *instant           { return &a.at }
func (a *testAlarm) age() uint64                  { return uint64(a.number) } //nolint:gosec // small
func (a *testAlarm) expire(_ *Queue, now instant) { a.fire(now.time()) }

// Deadlines at the same time come in the order of age, in whatever order they were set.
func TestTiesAreBrokenByAge(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 9)) //nolint:gosec // the same each time
	for _, wait := range []time.Duration{time.Minute, 2 * time.Hour} {
		b := newBench(t, Config{})
		var got, want []int
		for i := range 100 {
			want = append(want, i)
		}
		at := moment(b.now.Add(wait))
		for _, i := range r.Perm(100) {
			b.arm(&testAlarm{number: i, fire: func(time.Time) { got = append(got, i) }}, at)
		}
		b.advance(wait)
		assert.Equal(t, want, got)
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

// Deadlines that are set, moved and removed at random come at their times.
func TestDeadlinesComeInTime(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5)) //nolint:gosec // the same each time
	b := newBench(t, Config{})
	start := b.now
	due := map[int]time.Time{}
	fired, step := 0, 0
	var alarms [300]*testAlarm
	for i := range alarms {
		alarms[i] = &testAlarm{number: i, fire: func(now time.Time) {
			fired++
			assert.False(t, now.Before(due[i]), "%d is early", step)
			delete(due, i)
		}}
	}
	for step = range 3000 {
		switch i := r.IntN(len(alarms)); r.IntN(4) {
		case 0:
			b.disarm(alarms[i])
			delete(due, i)
		case 1:
			b.now = b.now.Add(time.Duration(r.IntN(60)) * time.Second)
			b.Tick(b.now)
		default:
			due[i] = b.now.Add(time.Duration(1 + r.Int64N(int64(time.Hour))))
			b.arm(alarms[i], moment(due[i]))
		}
		at, ok := b.NextDeadline()
		require.Equal(t, len(due) > 0, ok)
		for _, d := range due {
			require.False(t, at.After(d), "the deadline is known")
			require.True(t, d.After(b.now), "it has come")
		}
	}
	require.Greater(t, fired, 100)
	require.Greater(t, b.now.Sub(start), time.Hour)
	for len(due) > 0 { // waits from deadline to deadline come to an end
		at, _ := b.NextDeadline()
		require.True(t, at.After(b.now), "an owner would spin")
		b.now = at
		b.Tick(b.now)
	}
	assert.Empty(t, b.timers.chunks)
}

// What is kept for a stage that waits, beside its id, its task and its variants.
// Not parallel: it measures the heap.
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
