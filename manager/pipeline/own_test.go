package pipeline

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// Stages whose end never comes, because the manager refused or lost them, must not fill the memory.
func TestTheOwnPartsOfAProcessAreBounded(t *testing.T) {
	t.Parallel()
	o := ownParts{recent[store.StepID, struct{}]{most: 2000}}
	o.add("opened")
	o.add("opened", store.Step{ID: "a"}) // the stage includes it
	assert.True(t, o.has("opened", "a"))
	assert.Len(t, o.entries, 1)
	o.add("other", store.Step{ID: "a"}, store.Step{ID: "b"})
	assert.True(t, o.has("other", "b"))
	assert.False(t, o.has("other", ""), "another process has opened it")
	assert.False(t, o.has("other", "c"))
	for i := range 100 {
		o.add("refused" + strconv.Itoa(i))
	}
	assert.Less(t, len(o.entries), 10)
	assert.True(t, o.has("refused99", ""))
	assert.False(t, o.has("opened", ""))
}
