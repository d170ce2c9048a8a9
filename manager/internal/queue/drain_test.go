package queue

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

// Rule Q3: a delegate drains while its manager or the delegate itself asks for it.
func TestADelegateIsDrainedByEitherSide(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	d := b.add("d", 2)
	b.stage("has", Normal)
	b.acquire(d, "has")
	b.complete(d, "has")
	b.stage("s", Normal)
	b.single("t")
	beat := func(draining bool) { require.NoError(t, b.Heartbeat(acc, Registration{ID: d, Draining: draining})) }
	drain := func(draining bool) { require.NoError(t, b.SetDraining(acc, d, draining)) }
	state := func() DelegateState { return b.Delegates(acc)[0].State }

	require.Equal(t, []string{"s", "t"}, b.offers(d))
	drain(true)
	assert.Empty(t, b.offers(d))
	assert.Equal(t, Draining, state())
	assert.Equal(t, "every delegate that could take it is lost or draining: bring one back, or start another", b.reason("s"))
	beat(false)
	assert.Empty(t, b.offers(d), "the delegate does not end the drain of its manager")
	require.NoError(t, b.Append(acc, "has", &task.Task{ID: "step", Type: "execute"}))
	assert.Equal(t, []string{"step"}, b.offers(d), "the stage continues")
	b.acquire(d, "step")
	beat(true)
	drain(false)
	assert.Empty(t, b.offers(d), "the manager does not end the drain of the delegate")
	beat(false)
	assert.Equal(t, []string{"s", "t"}, b.offers(d))
	assert.Equal(t, Alive, state())
	require.ErrorIs(t, b.SetDraining(acc, "none", true), ErrUnknownDelegate)
}

// While an account is paused, none of its works begins. Afterwards they begin in their
// order.
func TestAPausedAccountBeginsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	d := b.add("d", 2)
	b.stage("has", Normal)
	b.acquire(d, "has")
	b.complete(d, "has")
	b.stage("offered", Normal)
	b.single("t")
	b.Pause(acc, true, "")
	b.Pause(acc, true, "")
	assert.True(t, paused(b.Queue, acc))
	b.stage("urgent", High)
	b.single("more")
	late := b.add("late", 1)
	require.NoError(t, b.Append(acc, "has", &task.Task{ID: "step", Type: "execute"}))
	assert.Equal(t, []string{"step"}, b.offers(d))
	assert.Empty(t, b.offers(late))
	assert.Equal(t, "the account is paused, nothing is given to delegates until it is resumed", b.reason("more"))
	require.NoError(t, b.Submit("other", &Work{ID: "x", Variants: one("x", "custom")}))
	b.Register("other", Registration{NewID: "o"})
	l, err := b.List("other", "o", "")
	require.NoError(t, err)
	assert.Len(t, l.Events, 1, "other accounts continue")

	b.Events()
	saved := save(t, b.Queue)
	require.NoError(t, b.Load(bytes.NewReader(saved)))
	assert.True(t, paused(b.Queue, acc))
	assert.Equal(t, saved, save(t, b.Queue))
	checkIndex(t, b.accounts[acc])
	b.Pause(acc, false, "")
	assert.False(t, paused(b.Queue, acc))
	assert.ElementsMatch(t, []string{"urgent", "offered", "t", "more"},
		append(b.offers(late), b.offers(d)[1:]...))
	assert.False(t, paused(b.Queue, "none"))
}
