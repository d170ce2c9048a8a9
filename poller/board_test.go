package poller

import (
	"testing"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// P5: between a drain's last look and its end nothing starts; nobody would bound
// how long it runs.
func TestARetiredBoardGivesNothingAway(t *testing.T) {
	t.Parallel()
	e := task.Event{TaskID: "one", TaskType: "local_execute"}
	now := time.Now()
	b := newBoard(1)
	assert.True(t, b.list(&client.Pending{Events: []task.Event{e}}, now), "a new task is news")
	assert.False(t, b.list(&client.Pending{Events: []task.Event{e}}, now))
	_, before := b.quiet()
	j := b.claim(e, task.Execute, nil)
	require.NotNil(t, j)
	assert.False(t, b.retire(before), "a task runs")
	b.vacate(j)
	b.done(j, now)
	assert.False(t, b.retire(before), "a task has run meanwhile")
	_, claims := b.quiet()
	require.True(t, b.retire(claims))
	b.list(&client.Pending{Events: []task.Event{{TaskID: "two", TaskType: "local_execute"}}}, now)
	assert.Nil(t, b.claim(task.Event{TaskID: "two"}, task.Execute, nil))
}
