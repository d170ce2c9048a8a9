package queue

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// leased starts the stage "s", with a lease of a minute, at a delegate.
func (b *bench) leased(d string) {
	require.NoError(b.t, b.Submit(acc, &Work{ID: "s", Stage: true, Lease: time.Minute, Variants: one("s", "init")}))
	b.acquire(d, "s")
	b.complete(d, "s")
	b.Events()
}

// kinds takes the events and returns those about the stage "s".
func (b *bench) kinds() (kinds []EventKind) {
	for _, e := range b.Events() {
		if e.Work == "s" {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

func (b *bench) addToGroup(name string) string {
	return b.Register(acc, Registration{Name: name, Group: "g"})
}

func TestALeaseEndsOnceUnlessItIsRenewed(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{HeartbeatTimeout: time.Hour})
	b.leased(b.add("d", 1))
	b.advance(59 * time.Second)
	require.NoError(t, b.Renew(acc, "s"))
	b.advance(59 * time.Second)
	assert.Empty(t, b.kinds())
	b.advance(time.Second)
	assert.Equal(t, []EventKind{LeaseEnded}, b.kinds())
	require.ErrorIs(t, b.Renew(acc, "s"), ErrFinished, "a lease that has ended does not begin again")
	require.ErrorIs(t, b.Renew(acc, "other"), ErrUnknownWork)
	b.advance(10 * time.Minute)
	assert.Empty(t, b.kinds())
}

func TestALeaseThatIsDroppedCausesNoEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{HeartbeatTimeout: time.Hour})
	b.leased(b.add("d", 1))
	require.NoError(t, b.EndLease(acc, "s"))
	require.NoError(t, b.EndLease(acc, "s"))
	b.advance(2 * time.Minute)
	assert.Empty(t, b.kinds())

	c := newBench(t, Config{HeartbeatTimeout: time.Hour, Retention: time.Hour})
	c.leased(c.add("d", 1))
	require.NoError(t, c.Release(acc, "s"))
	c.advance(2 * time.Minute)
	assert.Empty(t, c.kinds(), "the stage was released")
	require.ErrorIs(t, c.Enlarge(acc, "s", 1), ErrFinished)
}

func TestTheHolderGetsTheWholeLeaseAfterAnOutage(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{HeartbeatTimeout: time.Minute, Gap: 10 * time.Second})
	b.leased(b.add("d", 1))
	at, ok := b.NextDeadline()
	require.True(t, ok)
	assert.LessOrEqual(t, at.Sub(b.now), 10*time.Second, "an operation shows that there is no outage")
	b.advance(time.Hour)
	assert.Empty(t, b.kinds())
	for range 7 {
		b.advance(9 * time.Second)
	}
	assert.Contains(t, b.kinds(), LeaseEnded)
}

// A lost delegate ends the tasks that it has, and these events suffice. Without a task, the
// stage would not end.
func TestAStageWithoutATaskIsStrandedWithItsDelegate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before func(b *bench)
		gone   func(b *bench, d string)
		want   []EventKind
	}{
		"lost":         {gone: func(b *bench, _ string) { b.advance(time.Minute) }, want: []EventKind{Stranded}},
		"unregistered": {gone: func(b *bench, d string) { require.NoError(b.t, b.Unregister(acc, d)) }, want: []EventKind{Stranded}},
		"lost with a task": {
			before: func(b *bench) { require.NoError(b.t, b.Append(acc, "s", one("step", "step")[0].Task)) },
			gone:   func(b *bench, _ string) { b.advance(50 * time.Second) }, want: []EventKind{Ended},
		},
		"lost with a peer": {
			before: func(b *bench) { b.addToGroup("peer") },
			gone:   func(b *bench, d string) { require.NoError(b.t, b.Unregister(acc, d)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Config{HeartbeatTimeout: 50 * time.Second})
			d := b.addToGroup("d")
			b.leased(d)
			if tc.before != nil {
				tc.before(b)
			}
			tc.gone(b, d)
			got := slices.DeleteFunc(b.kinds(), func(k EventKind) bool { return k == LeaseEnded })
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestALeaseIsSavedAndLoaded(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{HeartbeatTimeout: time.Hour, Epoch: "e"})
	b.leased(b.add("d", 1))
	var saved, again bytes.Buffer
	require.NoError(t, b.Save(&saved))
	c := newBench(t, Config{HeartbeatTimeout: time.Hour, Epoch: "e"})
	require.NoError(t, c.Load(bytes.NewReader(saved.Bytes())))
	require.NoError(t, c.Save(&again))
	assert.Equal(t, saved.String(), again.String())
	c.advance(time.Minute)
	assert.Equal(t, []EventKind{LeaseEnded}, c.kinds())

	damaged := bytes.Replace(saved.Bytes(), []byte(`"lease":{"time":60000000000,`), []byte(`"lease":{"time":-6000000000,`), 1)
	require.NotEqual(t, saved.Bytes(), damaged)
	require.ErrorContains(t, c.Load(bytes.NewReader(damaged)), "lease")
}
