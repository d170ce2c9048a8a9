package poller

import (
	"context"
	"testing"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// P2: an event that the manager does not list any more is dropped, and an event
// that it lists twice is pending once.
func TestTaskTableDropsStaleAndDuplicateEvents(t *testing.T) {
	t.Parallel()
	now := time.Now()
	events := func(ids ...string) (out []task.Event) {
		for _, id := range ids {
			out = append(out, task.Event{TaskID: id, TaskType: "local_execute"})
		}
		return out
	}
	b := newTaskTable(10)
	b.update(&client.Pending{Events: events("stale", "stays")}, now)
	b.update(&client.Pending{Events: events("stays", "new", "stays")}, now)
	assert.Equal(t, events("stays", "new"), b.candidates(taskkind.Execute, now, 0))
	assert.Nil(t, b.claim(events("stale")[0], taskkind.Execute, nil), "it was unlisted before the claim")
	b.update(&client.Pending{}, now)
	assert.Empty(t, b.candidates(taskkind.Execute, now, 0))
	assert.Zero(t, b.pendingCount())
}

// C4: a pause of an hour ends at once with its context.
func TestBackOffEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan bool, 1)
	go func() { over <- newBackOff(time.Hour, time.Hour).pause(ctx) }()
	cancel()
	select {
	case goesOn := <-over:
		require.False(t, goesOn)
	case <-time.After(10 * time.Second):
		require.Fail(t, "it continues to wait")
	}
}
