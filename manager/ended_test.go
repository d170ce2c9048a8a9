package manager_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// The list of ended stages is in the order of the ends, tells how many the manager has forgotten,
// and continues in a process that reads the saved state.
func TestEndedStagesAreNumberedWithoutAGap(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.MaxFinished = 3 })
	for i := range 8 {
		s.submit(fmt.Sprintf(`{"id":"s%d","init":{"envs":{}}}`, i))
	}
	ended := func(query string) (e api.NumberedStages, ids []string) {
		s.ok("GET", "/api/ended-stages?accountId=acc"+query, "", &e)
		for _, st := range e.Stages {
			ids = append(ids, st.Stage.ID)
		}
		return e, ids
	}
	e, ids := ended("")
	assert.Empty(t, ids)
	assert.Zero(t, e.Last)
	for _, i := range []int{2, 0, 1} {
		_, err := s.m.AbortStage(t.Context(), account, fmt.Sprintf("s%d", i))
		require.NoError(t, err)
	}
	e, ids = ended("&limit=2")
	assert.Equal(t, []string{"s2", "s0"}, ids)
	assert.Equal(t, uint64(2), e.Next)
	assert.Equal(t, uint64(3), e.Last)
	_, ids = ended("&after=2")
	assert.Equal(t, []string{"s1"}, ids)

	for _, i := range []int{7, 6, 5, 4} {
		_, err := s.m.AbortStage(t.Context(), account, fmt.Sprintf("s%d", i))
		require.NoError(t, err)
	}
	e, ids = ended("&after=2")
	assert.Equal(t, []string{"s6", "s5", "s4"}, ids)
	assert.Equal(t, uint64(2), e.Missed, "s1 and s7 are forgotten")
	assert.Equal(t, uint64(7), e.Next)
	e, ids = ended("&after=7")
	assert.Empty(t, ids)
	assert.Equal(t, uint64(7), e.Next)
	assert.Zero(t, e.Missed)
	assert.NotEmpty(t, e.Epoch)
	assert.Equal(t, 400, s.call("GET", "/api/ended-stages?accountId=acc&after=x", "").status)
}
