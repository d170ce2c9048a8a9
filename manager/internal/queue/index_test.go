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

// More tags than there are bits for, more classes than are kept unused, and works
// that are taken from anywhere: each decision is that of the scan.
func TestTheIndexAtItsLimits(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // the same each time
	some := func(n int) (out []string) {
		for range r.IntN(n) {
			out = append(out, fmt.Sprint("t", r.IntN(90)))
		}
		return out
	}
	b := newBench(t, Config{MaxFinished: 5, HeartbeatTimeout: 100 * time.Hour, AcquireTimeout: 20 * time.Hour})
	decisions := compare(t, b.Queue)
	ids := []string{}
	for i := range 8 {
		ids = append(ids, b.add(fmt.Sprint("d", i), 1, some(60)...))
	}
	a := b.accounts[acc]
	shares := false
	for i := range 6000 {
		id := fmt.Sprint("s", i)
		require.NoError(t, b.Submit(acc, &Work{
			ID: id, Stage: i%5 > 0, Selectors: some(4), Priority: Priority(r.IntN(2)), Variants: one(id, "init"),
			QueueTimeout: time.Duration(r.IntN(10)) * time.Hour,
		}))
		if i > 40 { // keep it short: this is compared with a scan
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
		for _, tg := range a.tags {
			shares = shares || tg.bit == shared
		}
		b.Events()
	}
	assert.True(t, shares, "tags enough to share a bit")
	assert.Less(t, len(a.classes), unused+len(a.works)+100, "unused classes are dropped")
	assert.Greater(t, *decisions, 10_000)
}

// Works that need the same are of one class, however they spell it, and those that
// do not are not.
func TestOneClassForOneNeed(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	for i, selectors := range [][]string{{"a", "b"}, {"B ", "a"}, {"b", "a", "A"}} {
		b.stage(fmt.Sprint("s", i), Priority(i%2), selectors...)
	}
	a := b.accounts[acc]
	assert.Len(t, a.classes, 1)
	assert.Equal(t, []string{"B ", "a"}, *a.works["s1"].Selectors, "its own spelling is what people see")
	b.single("t", "a", "b")
	b.stage("other", Normal, "a b")
	b.stage("quoted", Normal, `a" "b`)
	require.NoError(t, b.Submit(acc, &Work{ID: "types", Stage: true, Selectors: []string{"a", "b"}, Variants: one("types", "other")}))
	assert.Len(t, a.classes, 5)
}

// A class queues at its rarest selector, also when that shows late.
func TestAClassQueuesAtItsRarestSelector(t *testing.T) {
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
	assert.Equal(t, "gpu", a.works["first"].class.line.tag.name)
	checkIndex(t, a)
	assert.Nil(t, a.tags["linux"].lines[stages])
}

// SPEC Q4: one that let a work lie is the last choice for it, however free it is,
// and is one when the others cannot.
func TestWhoLetItLieComesLast(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{AcquireTimeout: 10 * time.Second, HeartbeatTimeout: time.Hour})
	compare(t, b.Queue)
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
	decisions := compare(t, b.Queue)
	for i := range 6 {
		b.add(fmt.Sprint("d", i), 1+i%3)
	}
	b.stage("s", Normal)
	for range 30 {
		b.advance(10 * time.Second)
	}
	assert.Greater(t, *decisions, 30)
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

// A bit that a tag has given up says nothing about the tag that gets it next.
func TestABitOfATagIsUsedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	compare(t, b.Queue)
	d := b.add("d", 1, "a")
	b.stage("s", Normal, "a")
	require.NoError(t, b.Abort(acc, "s", "because"))
	require.NoError(t, b.Release(acc, "s"))
	a := b.accounts[acc]
	bit := a.tags["a"].bit
	a.dropIdle()
	checkIndex(t, a)
	b.stage("other", Normal, "z")
	require.Equal(t, bit, a.tags["z"].bit)
	assert.Empty(t, b.offers(d))
	b.stage("again", Normal, "a")
	assert.Equal(t, []string{"again"}, b.offers(d))
}

// A lane stays in order and small, whatever leaves it and comes back.
func TestALaneStaysInOrder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 3)) //nolint:gosec // the same each time
	b := newBench(t, Config{})
	for i := range 400 {
		b.stage(fmt.Sprint("s", i), Normal)
	}
	a := b.accounts[acc]
	var n *lane
	for _, w := range a.works {
		n = w.lane
	}
	out := map[*work]bool{}
	for range 4000 {
		for _, w := range a.works { // any
			if r.IntN(3) > 0 && out[w] == (w.lane == nil) {
				if w.lane != nil && len(out) < 395 {
					n.take(w)
					out[w] = true
				} else if w.lane == nil {
					n.add(w)
					delete(out, w)
				}
			}
			break
		}
		checkLane(t, n)
		require.LessOrEqual(t, n.holes, len(n.list)/2+32)
		require.Equal(t, 400-len(out), n.class.waiting)
	}
	assert.NotEmpty(t, n.back, "what came back")
}

// testAlarm is the owner of a timer that is nothing else.
type testAlarm struct {
	number int
	timer  timer
	fire   func(now time.Time)
}

func (a *testAlarm) clock() *timer             { return &a.timer }
func (a *testAlarm) age() uint64               { return uint64(a.number) } //nolint:gosec // small
func (a *testAlarm) due(_ *Queue, now instant) { a.fire(now.time()) }

// What is due at the same instant comes in the order of age, however it was armed.
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

// A place is counted right in a long lane with holes, before and after that is tidied,
// and among lanes of other needs and priorities.
func TestAPlaceIsCountedRightInALongLane(t *testing.T) {
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

// What is far away is not looked at, and happens in its time all the same.
func TestFarDeadlinesCome(t *testing.T) {
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
	assert.Empty(t, b.timers.slots)
	assert.Empty(t, b.timers.far)
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
