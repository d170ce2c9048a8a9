package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

// peers is a queue with a delegate a that runs the stage s.
type peers struct {
	*bench
	a string
}

func newPeers(t *testing.T, group string) *peers {
	t.Helper()
	p := &peers{bench: newBench(t, Config{HeartbeatTimeout: 45 * time.Second, AcquireTimeout: 20 * time.Second})}
	p.a = p.peer("a", group, 0)
	p.stage("s", Normal, "linux")
	p.acquire(p.a, "s")
	p.complete(p.a, "s")
	return p
}

func (p *peers) peer(name, group string, most int) string {
	id := p.Register(acc, Registration{Name: name, Tags: []string{"linux"}, Group: group})
	require.NoError(p.t, p.SetCapacity(acc, id, most))
	return id
}

// next appends a step of the stage.
func (p *peers) next(id string) {
	require.NoError(p.t, p.Append(acc, "s", &task.Task{ID: id, Type: "execute", Timeout: 50_000}))
}

// outlast lets a be lost while the other delegates send heartbeats.
func (p *peers) outlast(others ...string) {
	for range 3 {
		p.advance(15 * time.Second)
		for _, d := range others {
			require.NoError(p.t, p.Heartbeat(acc, Registration{ID: d}))
		}
	}
}

func (p *peers) slots() map[string]int {
	slots := map[string]int{}
	for _, d := range p.Delegates(acc) {
		slots[d.Name] = d.Stages
	}
	return slots
}

// Rule Q3: if a delegate unregisters with a step that it has not acquired, the stage continues
// at a delegate of its group. Without one the step ends.
func TestAnotherDelegateOfItsGroupContinuesAStage(t *testing.T) {
	t.Parallel()
	p := newPeers(t, "g")
	b, other := p.peer("b", "g", 1), p.peer("other", "h", 0)
	p.next("step")
	require.Equal(t, []string{"step"}, p.offers(p.a))
	require.NoError(t, p.Unregister(acc, p.a))
	assert.Equal(t, []string{"step"}, p.offers(b))
	assert.Empty(t, p.offers(other))
	assert.Equal(t, map[string]int{"b": 1, "other": 0}, p.slots())
	p.acquire(b, "step")
	p.complete(b, "step")
	p.next("step 2")
	assert.Equal(t, []string{"step 2"}, p.offers(b), "the stage stays there")
	require.NoError(t, p.Unregister(acc, b))
	s, err := p.Task(acc, "step 2")
	require.NoError(t, err)
	assert.Equal(t, Abandoned, s.Result.Outcome, "no delegate of the group is left")
}

// Rule Q4: a step that the lost delegate had acquired is not run again. The group gets the
// cleanup, and passes it on.
func TestAGroupGetsTheCleanupOfALostDelegate(t *testing.T) {
	t.Parallel()
	p := newPeers(t, "g")
	b := p.peer("b", "g", 0)
	p.next("step")
	p.acquire(p.a, "step")
	p.outlast(b)
	s, err := p.Task(acc, "step")
	require.NoError(t, err)
	assert.Equal(t, Abandoned, s.Result.Outcome)
	require.NoError(t, p.AppendDetached(acc, "s", &task.Task{ID: "cleanup", Type: "cleanup"}))
	require.NoError(t, p.Release(acc, "s"))
	assert.Equal(t, []string{"cleanup"}, p.offers(b))
	assert.Equal(t, map[string]int{"a": 0, "b": 0}, p.slots(), "a cleanup after the end of a stage has no slot")

	require.NoError(t, p.Heartbeat(acc, Registration{ID: p.a}))
	assert.Empty(t, p.offers(p.a))
	assert.Equal(t, []string{"step"}, p.stops(p.a), "the delegate that returns is to stop the step")
	require.NoError(t, p.Unregister(acc, b))
	assert.Equal(t, []string{"cleanup"}, p.offers(p.a))
	p.acquire(p.a, "cleanup")
	p.complete(p.a, "cleanup")
}

// A step that its delegate does not acquire in time moves. Without another delegate of the
// group the offer stands until the time-out of the step.
func TestAStepThatIsNotAcquiredInTimeMoves(t *testing.T) {
	t.Parallel()
	p := newPeers(t, "g")
	p.next("step")
	p.advance(20 * time.Second)
	assert.Equal(t, []string{"step"}, p.offers(p.a))
	b := p.peer("b", "g", 0)
	p.advance(19 * time.Second)
	assert.Equal(t, []string{"step"}, p.offers(p.a))
	p.advance(time.Second)
	assert.Equal(t, []string{"step"}, p.offers(b))
	late, err := p.Acquire(acc, p.a, "step")
	require.NoError(t, err)
	assert.Nil(t, late)
	require.ErrorIs(t, p.Complete(acc, p.a, "step", Answer{Outcome: Success}), ErrNotOwner)
	p.advance(12 * time.Second) // 52 s after the step was sent: its time-out and the grace
	s, err := p.Task(acc, "step")
	require.NoError(t, err)
	assert.Equal(t, TimedOut, s.Result.Outcome)
	assert.Contains(t, s.Result.Error, `"b" did not take the task`)
}

// Rules Q2 and Q3: a delegate with a free slot comes first. One that drains, lacks a selector
// or a task type, or has no group gets nothing.
func TestOnlyAnEligibleDelegateOfTheGroupGetsAStage(t *testing.T) {
	t.Parallel()
	p := newPeers(t, "g")
	p.Register(acc, Registration{Name: "untagged", Group: "g"})
	p.Register(acc, Registration{Name: "incapable", Group: "g", Tags: []string{"linux"}, Types: []string{"execute"}})
	p.Register(acc, Registration{Name: "drains", Group: "g", Tags: []string{"linux"}, Draining: true})
	p.Register(acc, Registration{Name: "alone", Tags: []string{"linux"}})
	p.Register("other account", Registration{Name: "foreign", Group: "g", Tags: []string{"linux"}})
	full := p.peer("full", "g", 1)
	p.stage("of full", Normal, "full")
	p.acquire(full, "of full")
	free := p.peer("free", "g", 1)
	p.next("step")
	require.NoError(t, p.Unregister(acc, p.a))
	assert.Equal(t, []string{"step"}, p.offers(free))

	p.stage("waits", Normal, "full")
	require.NoError(t, p.Unregister(acc, free))
	assert.Equal(t, []string{"step"}, p.offers(full), "a stage that has begun does not wait for a slot")
	assert.Equal(t, 2, p.slots()["full"])
	p.complete(full, "of full")
	require.NoError(t, p.Release(acc, "of full"))
	assert.Equal(t, []string{"step"}, p.offers(full), "no new stage exceeds the capacity")
}

// A stage that moves takes the slot of a stage that was offered and not acquired.
func TestAStageThatMovesDisplacesAnOffer(t *testing.T) {
	t.Parallel()
	p := newPeers(t, "g")
	b := p.peer("b", "g", 1)
	p.stage("new", Normal, "b")
	require.Equal(t, []string{"new"}, p.offers(b))
	p.next("step")
	require.NoError(t, p.Unregister(acc, p.a))
	assert.Equal(t, []string{"step"}, p.offers(b))
}

// Rule Q7: a saved queue knows the groups.
func TestGroupsAreSaved(t *testing.T) {
	t.Parallel()
	p := newPeers(t, "g")
	b := p.peer("b", "g", 0)
	p.next("step")
	r := &replicas{bench: p.bench, twin: New(p.cfg)}
	p.Events()
	r.reload(&p.Queue)
	require.NoError(t, p.Unregister(acc, p.a))
	assert.Equal(t, []string{"step"}, p.offers(b))
	require.NoError(t, p.Heartbeat(acc, Registration{ID: b, Group: "h"}))
	assert.False(t, p.Unchanged(acc, Registration{ID: b, Group: "g"}))
	assert.True(t, p.Unchanged(acc, Registration{ID: b}))
}
