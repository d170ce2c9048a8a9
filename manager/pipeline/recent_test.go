package pipeline

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheValuesThatWereUsedLastStayWithinTheirBytes(t *testing.T) {
	t.Parallel()
	r := recent[string, int]{most: 100}
	r.put("a", 1, 40)
	r.put("b", 2, 40)
	_, ok := r.get("a")
	assert.True(t, ok)
	r.put("c", 3, 40)
	_, ok = r.get("b")
	assert.False(t, ok, "the oldest use leaves")
	r.put("c", 4, 60) // replaces
	v, ok := r.take("c")
	assert.Equal(t, 4, v)
	assert.True(t, ok)
	_, ok = r.take("c")
	assert.False(t, ok)
	r.put("huge", 5, 101)
	_, ok = r.get("huge")
	assert.False(t, ok)
	_, ok = r.get("a")
	assert.True(t, ok, "a value that is too large removes no other")
	assert.Equal(t, 40, r.size)
}
