package queue

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// groupStage submits a stage that belongs to groups.
func (b *bench) groupStage(id string, p Priority, groups ...string) {
	require.NoError(b.t, b.Submit(acc, &Work{ID: id, Stage: true, Priority: p, Groups: groups, Variants: one(id, "init")}))
}

// runStage takes a stage from its offer to its release.
func (b *bench) runStage(d, id string) {
	b.acquire(d, id)
	b.complete(d, id)
	require.NoError(b.t, b.Release(acc, id))
}

func (b *bench) reason(id string) string {
	p, err := b.Place(acc, id)
	require.NoError(b.t, err)
	return p.Reason
}

// A group has no more stages than its limit, however many slots are free. The next stage
// is the first one of the group.
func TestAGroupHasNoMoreStagesThanItsLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.SetLimit(acc, "pipeline:web", 2)
	d := b.add("d", 0)
	for i := range 4 {
		b.groupStage(fmt.Sprint("web", i), Normal, "pipeline:web", "label:env=prod")
	}
	b.groupStage("urgent", High, "pipeline:web")
	b.groupStage("other", Normal, "pipeline:other")
	b.single("single")
	assert.Equal(t, []string{"web0", "web1", "other", "single"}, b.offers(d))
	assert.Equal(t, `the limit of 2 for "pipeline:web" is reached`, b.reason("web2"))
	assert.Equal(t, []Limit{{"pipeline:web", 2, 2}}, b.Limits(acc))

	b.runStage(d, "web1")
	assert.Equal(t, []string{"web0", "other", "single", "urgent"}, b.offers(d))
	b.SetLimit(acc, "pipeline:web", 3)
	assert.Equal(t, []string{"web0", "other", "single", "urgent", "web2"}, b.offers(d), "at once")
	b.SetLimit(acc, "pipeline:web", 1)
	assert.Equal(t, []string{"web0", "other", "single", "urgent", "web2"}, b.offers(d), "nothing is taken back")
	for _, id := range []string{"web0", "urgent"} {
		b.runStage(d, id)
		assert.NotContains(t, b.offers(d), "web3")
	}
	b.runStage(d, "web2")
	assert.Equal(t, []string{"other", "single", "web3"}, b.offers(d))
	b.SetLimit(acc, "pipeline:web", 0)
	assert.Empty(t, b.Limits(acc))
}

// The limit of an account counts for all of its stages and for no other account.
func TestTheLimitOfAnAccount(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.SetLimit(acc, "", 1)
	d, other := b.add("d", 0), b.Register("other", Registration{Name: "d"})
	b.groupStage("a", Normal, "g")
	b.groupStage("b", Normal)
	require.NoError(t, b.Submit("other", &Work{ID: "a", Stage: true, Variants: one("a", "init")}))
	require.NoError(t, b.Submit("other", &Work{ID: "b", Stage: true, Variants: one("b", "init")}))
	assert.Equal(t, []string{"a"}, b.offers(d))
	assert.Equal(t, "the limit of 1 for the account is reached", b.reason("b"))
	l, err := b.List("other", other, "")
	require.NoError(t, err)
	assert.Len(t, l.Events, 2)
	b.runStage(d, "a")
	assert.Equal(t, []string{"b"}, b.offers(d))
}

// A stage leaves its room in its groups however it ends, and when it waits again.
func TestRoomInAGroupComesBack(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *bench, d string){
		"released": func(b *bench, d string) { b.runStage(d, "a") },
		"aborted": func(b *bench, _ string) {
			require.NoError(b.t, b.Abort(acc, "a", ""))
			require.NoError(b.t, b.Release(acc, "a"))
		},
		"not taken": func(b *bench, _ string) { b.advance(time.Minute) },
		"handed back": func(b *bench, d string) {
			b.acquire(d, "a")
			require.NoError(b.t, b.Complete(acc, d, "a", Answer{Retry: true}))
		},
		"unregistered": func(b *bench, d string) {
			b.acquire(d, "a")
			require.NoError(b.t, b.Unregister(acc, d))
			require.NoError(b.t, b.Release(acc, "a"))
		},
		"less capacity": func(b *bench, d string) {
			b.stage("more", Normal, "d")
			b.acquire(d, "more")
			require.NoError(b.t, b.SetCapacity(acc, d, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Config{HeartbeatTimeout: time.Hour})
			b.SetLimit(acc, "g", 1)
			d := b.add("d", 2)
			require.NoError(t, b.Submit(acc, &Work{
				ID: "a", Stage: true, Groups: []string{"g"}, Selectors: []string{"d"}, Variants: one("a", "init"),
			}))
			e := b.add("e", 2)
			require.NoError(t, b.Submit(acc, &Work{
				ID: "b", Stage: true, Priority: High, Groups: []string{"g"}, Selectors: []string{"e"}, Variants: one("b", "init"),
			}))
			require.Empty(t, b.offers(e))
			end(b, d)
			assert.Equal(t, []string{"b"}, b.offers(e), "the delegate was free all the time")
			checkIndex(t, b.accounts[acc])
		})
	}
}

// Rule Q2: a slot and room in a group that become free go to works in the order of the
// queue. A stage of the group does not pass an older stage that needs the slot.
func TestALimitDoesNotChangeTheOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.SetLimit(acc, "g", 1)
	d := b.add("d", 1)
	b.groupStage("first", Normal, "g")
	b.groupStage("free", Normal)
	b.groupStage("limited", Normal, "g")
	idle := b.add("idle", 1, "only")
	require.NoError(t, b.SetCapacity(acc, idle, 1))
	require.Equal(t, []string{"free"}, b.offers(idle))
	b.groupStage("more", Normal)
	b.runStage(d, "first")
	assert.Equal(t, []string{"limited"}, b.offers(d))
	b.runStage(idle, "free")
	assert.Equal(t, []string{"more"}, b.offers(idle))
	b.groupStage("more limited", High, "g")
	b.groupStage("last", Normal)
	b.groupStage("urgent", High)
	b.runStage(d, "limited")
	assert.Equal(t, []string{"more limited"}, b.offers(d), "it is urgent too, and older")
}

// The slot that a stage of a full group leaves goes to the first work that waits, of
// whatever group.
func TestAFreedSlotIsNotForTheGroupAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.SetLimit(acc, "g", 1)
	d := b.add("d", 1)
	b.groupStage("first", Normal, "g")
	b.groupStage("older", Normal)
	b.groupStage("younger", Normal, "g")
	b.runStage(d, "first")
	assert.Equal(t, []string{"older"}, b.offers(d))
}

// A stage that goes back to the queue has its turn among those that wait for the same
// group. If its delegate refused it, another delegate gets it.
func TestARequeuedStageHasItsTurnInItsGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{AcquireTimeout: 10 * time.Second, HeartbeatTimeout: time.Hour})
	b.SetLimit(acc, "g", 1)
	d := b.add("d", 1)
	b.groupStage("older", Normal, "g")
	b.groupStage("younger", Normal, "g", "other")
	b.advance(10 * time.Second)
	assert.Equal(t, []string{"older"}, b.offers(d), "it missed the offer, and there is no other delegate")
	b.acquire(d, "older")
	free := b.add("free", 1)
	require.NoError(t, b.Complete(acc, d, "older", Answer{Retry: true}))
	assert.Equal(t, []string{"older"}, b.offers(free))
	assert.Empty(t, b.offers(d))
}

// A stage that goes back to the queue does not pass a stage of high priority.
func TestARequeuedStageDoesNotPassTheUrgent(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.SetLimit(acc, "g", 1)
	d, free := b.add("d", 2), b.add("free", 1)
	b.groupStage("s", Normal, "g")
	b.groupStage("urgent", High, "g")
	b.acquire(d, "s")
	require.NoError(t, b.Complete(acc, d, "s", Answer{Retry: true}))
	assert.Equal(t, []string{"urgent"}, b.offers(d))
	assert.Empty(t, b.offers(free))
}

// Stages that wait for different groups are served in the order of the queue.
func TestTheFirstOfSeveralGroupsComesFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	for _, g := range []string{"g", "h", "i"} {
		b.SetLimit(acc, g, 1)
	}
	d := b.add("d", 1)
	b.groupStage("first", Normal, "g", "h", "i")
	b.groupStage("second", Normal, "h")
	b.groupStage("third", Normal, "g")
	b.groupStage("fourth", Normal, "i")
	for _, id := range []string{"first", "second", "third"} {
		require.Equal(t, []string{id}, b.offers(d))
		b.runStage(d, id)
	}
}

// A stage that gets room in one group may fill another group, for which another stage
// waits.
func TestRoomInOneGroupMayFillAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	for _, g := range []string{"g", "h", "i"} {
		b.SetLimit(acc, g, 1)
	}
	d, e := b.add("d", 1), b.add("e", 1)
	submit := func(id string, p Priority, selector string, groups ...string) {
		require.NoError(t, b.Submit(acc, &Work{
			ID: id, Stage: true, Priority: p, Selectors: []string{selector}, Groups: groups, Variants: one(id, "init"),
		}))
	}
	submit("has", Normal, "d", "g", "i")
	submit("older", Normal, "d", "h")
	submit("younger", Normal, "d", "i")
	submit("urgent", High, "e", "g", "h")
	b.runStage(d, "has")
	assert.Equal(t, []string{"urgent"}, b.offers(e))
	assert.Equal(t, []string{"younger"}, b.offers(d), "the older one waits until the urgent one ends")
	checkIndex(t, b.accounts[acc])
}

// A slot that becomes free together with room in a group is given away once.
func TestAFreedSlotIsGivenAwayOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.SetLimit(acc, "g", 1)
	b.SetLimit(acc, "i", 1)
	d := b.add("d", 1)
	b.groupStage("has", Normal, "g", "i")
	b.groupStage("older", Normal)
	b.groupStage("younger", Normal, "i")
	b.groupStage("urgent", High, "g")
	b.runStage(d, "has")
	assert.Equal(t, []string{"urgent"}, b.offers(d))
	checkIndex(t, b.accounts[acc])
}

// A higher limit lets as many stages in as fit, the oldest first, of all requirements.
func TestAHigherLimitLetsManyIn(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.SetLimit(acc, "g", 1)
	d := b.add("d", 0)
	for i := range 8 {
		b.groupStage(fmt.Sprint("s", i), Normal, "g", fmt.Sprint("h", i%2))
	}
	b.SetLimit(acc, "g", 4)
	assert.Equal(t, []string{"s0", "s1", "s2", "s3"}, b.offers(d))
	b.SetLimit(acc, "h1", 2)
	b.SetLimit(acc, "g", 0)
	assert.Equal(t, []string{"s0", "s1", "s2", "s3", "s4", "s6"}, b.offers(d))
}

// Each group of a stage needs room for it.
func TestAllGroupsOfAStageCount(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	d := b.add("d", 0)
	b.SetLimit(acc, "g", 1)
	b.SetLimit(acc, "h", 1)
	b.groupStage("g", Normal, "g")
	b.groupStage("both", High, "h", "g", "g", "")
	b.groupStage("h", Normal, "h")
	require.Equal(t, []string{"g", "h"}, b.offers(d))
	b.groupStage("next g", Normal, "g")
	b.runStage(d, "g")
	assert.Equal(t, []string{"h", "next g"}, b.offers(d))
	b.runStage(d, "h")
	assert.Equal(t, []string{"next g"}, b.offers(d))
	b.runStage(d, "next g")
	assert.Equal(t, []string{"both"}, b.offers(d))
	checkIndex(t, b.accounts[acc])
}

// The reasons why a stage waits.
func TestAWaitingStageHasAReason(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.stage("s", Normal, "a", "b")
	assert.Equal(t, "no delegate is registered: start one", b.reason("s"))
	b.add("d", 1, "a")
	assert.Equal(t, `no delegate has the tags "a", "b": give them to one, or change the selectors`, b.reason("s"))
	d := b.Register(acc, Registration{Tags: []string{"a", "b"}, Types: []string{"other"}})
	assert.Equal(t, "no delegate with the right tags supports init: start one that does", b.reason("s"))
	require.NoError(t, b.SetCapacity(acc, d, 2))
	require.NoError(t, b.Heartbeat(acc, Registration{ID: d, Types: []string{"init"}}))
	b.acquire(d, "s")
	for i := range 3 {
		b.stage(fmt.Sprint("s", i), Normal, "a", "b")
	}
	assert.Equal(t, "one eligible delegate, at capacity (2 slots)", b.reason("s2"))
	b.add("e", 1, "a", "b")
	b.stage("s3", Normal, "a", "b")
	assert.Equal(t, "2 eligible delegates, all at capacity (3 slots)", b.reason("s3"))
	assert.Equal(t, b.reason("s2"), b.Places(acc)["s2"].Reason)
}

// Requirements that wait for a full group are at no tag, where a decision would meet
// them.
func TestBlockedRequirementsAreInNoShard(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	d := b.add("d", 2)
	b.SetLimit(acc, "g", 1)
	for i := range 100 {
		b.groupStage(fmt.Sprint("s", i), Normal, "g", fmt.Sprint("own", i))
	}
	a := b.accounts[acc]
	assert.Equal(t, 99, a.groups["g"].waiters.size)
	assert.Zero(t, a.tags[""].waiters[stages].size)
	b.runStage(d, "s0")
	assert.Equal(t, []string{"s1"}, b.offers(d))
	assert.Equal(t, 98, a.groups["g"].waiters.size)
	assert.Zero(t, a.tags[""].waiters[stages].size)
}

// A missed offer leaves a slot and room in a group. A stage that comes before the missed
// one gets both first, whether or not a decision has found it blocked before. A loaded
// queue decides the same.
func TestTheRoomOfAMissedOfferGoesToTheFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{AcquireTimeout: 20 * time.Second, Epoch: "epoch"})
	b.SetLimit(acc, "g", 2)
	of := func(id string, p Priority, selectors ...string) {
		require.NoError(t, b.Submit(acc, &Work{
			ID: id, Stage: true, Priority: p, Selectors: selectors, Groups: []string{"g"}, Variants: one(id, "init"),
		}))
	}
	first, second := b.add("first", 1), b.add("second", 1)
	of("left", Normal)
	b.advance(time.Second)
	third := b.add("third", 1)
	of("urgent", High, "first")
	of("last", Normal, "second")
	require.Equal(t, []string{"left"}, b.offers(first))
	require.Equal(t, []string{"last"}, b.offers(second))

	b.Events()
	var saved bytes.Buffer
	require.NoError(t, b.Save(&saved))
	loaded := &bench{t: t, Queue: New(b.cfg), now: b.now}
	require.NoError(t, loaded.Load(&saved))
	for _, b := range []*bench{b, loaded} {
		b.Tick(b.now.Add(19 * time.Second))
		assert.Equal(t, []string{"urgent"}, b.offers(first))
		assert.Empty(t, b.offers(third), "the group is full")
	}
}
