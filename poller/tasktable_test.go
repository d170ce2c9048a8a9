package poller

import (
	"fmt"
	"testing"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// P5: between the last check of a drain and its end no task starts: its time would
// have no bound.
func TestClosedTaskTableGivesNoClaims(t *testing.T) {
	t.Parallel()
	e := task.Event{TaskID: "one", TaskType: "local_execute"}
	now := time.Now()
	b := newTaskTable(1)
	assert.True(t, b.update(&client.Pending{Events: []task.Event{e}}, now), "a new task is news")
	assert.False(t, b.update(&client.Pending{Events: []task.Event{e}}, now))
	_, before := b.idle()
	j := b.claim(e, taskkind.Execute, nil)
	require.NotNil(t, j)
	assert.False(t, b.closeIfIdle(before), "a task runs")
	b.releaseExecutor(j)
	b.finish(j, now)
	assert.False(t, b.closeIfIdle(before), "a task has run meanwhile")
	_, claims := b.idle()
	require.True(t, b.closeIfIdle(claims))
	b.update(&client.Pending{Events: []task.Event{{TaskID: "two", TaskType: "local_execute"}}}, now)
	assert.Nil(t, b.claim(task.Event{TaskID: "two"}, taskkind.Execute, nil))
}

// P2: a task id is remembered while it is listed, in bounded memory.
func TestRecentIDsAreBoundedAndKeepUsedOnes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	m := newRecentIDs()
	m.add("asked", now)
	for i := range 5 * rememberMax {
		m.add(fmt.Sprint(i), now)
		if i%1000 == 0 {
			require.True(t, m.contains("asked", now))
		}
	}
	require.True(t, m.contains("asked", now))
	assert.LessOrEqual(t, len(m.young)+len(m.old), 2*rememberMax)
	for range 10 {
		now = now.Add(rememberFor)
		m.add(now.String(), now)
		require.True(t, m.contains("asked", now))
	}
	assert.Less(t, len(m.young)+len(m.old), 10)
}
