package manager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

// frozen is a clock that the manager's own loop never wakes by.
type frozen struct{ now time.Time }

func (c *frozen) Now() time.Time                          { return c.now }
func (c *frozen) At(time.Time) (<-chan time.Time, func()) { return nil, func() {} }

// A task that the queue has just forgotten, and the manager not yet, can be
// submitted again: it is new.
func TestSubmittingWhatIsBeingForgotten(t *testing.T) {
	t.Parallel()
	c := &frozen{now: time.Unix(1_700_000_000, 0)}
	m, err := New(Config{Accounts: map[string]string{"acc": "00000000000000000000000000000001"}, Clock: c, Retention: time.Minute})
	require.NoError(t, err)
	req := TaskRequest{Task: task.Task{ID: "t1", Type: "custom"}}
	_, err = m.SubmitTask(t.Context(), "acc", req)
	require.NoError(t, err)
	_, err = m.AbortTask(t.Context(), "acc", "t1")
	require.NoError(t, err)
	m.queue.Tick(c.now.Add(time.Minute)) // and nobody follows what came of it
	got, err := m.SubmitTask(t.Context(), "acc", req)
	require.NoError(t, err)
	assert.Equal(t, Queued, got.Status)
	require.NoError(t, m.Close())
}
