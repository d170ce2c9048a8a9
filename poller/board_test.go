package poller

import (
	"fmt"
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

// P2: a task is remembered for as long as it is listed, and its like in bounded
// memory.
func TestMemoryIsBoundedAndKeepsWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	now := time.Now()
	m := newMemory()
	m.add("asked", now)
	for i := range 5 * rememberMax {
		m.add(fmt.Sprint(i), now)
		if i%1000 == 0 {
			require.True(t, m.knows("asked", now))
		}
	}
	require.True(t, m.knows("asked", now))
	assert.LessOrEqual(t, len(m.young)+len(m.old), 2*rememberMax)
	for range 10 {
		now = now.Add(rememberFor)
		m.add(now.String(), now)
		require.True(t, m.knows("asked", now))
	}
	assert.Less(t, len(m.young)+len(m.old), 10)
}
