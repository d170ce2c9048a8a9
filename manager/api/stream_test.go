package api_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// The feed is cut in the middle of messages, again and again. Every event comes once, in order.
func TestEventsAreNeitherLostNorDoubled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.startDelegate(t)
	s.front.cut.Store(3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last uint64
	opened, lost, ended := 0, 0, false
	for e, err := range s.Events(ctx, api.EventFilter{}) {
		if err != nil {
			require.NoError(t, ctx.Err(), "the end of the stage did not come")
			lost++
			continue
		}
		switch e.Kind {
		case "open":
			if opened++; opened > 1 {
				assert.Equal(t, last, e.ID, "the feed continues after the last event")
				continue
			}
			last = e.ID
			_, err := s.SubmitStage(ctx, api.StageRequest{ID: "a", Steps: []api.StepRequest{
				step("1", "true"), step("2", "true"), step("3", "true"), step("4", "true"), step("5", "true"),
			}})
			require.NoError(t, err)
		case "status":
			require.Equal(t, last+1, e.ID)
			last = e.ID
			ended = e.Type == "stage" && e.Status == "SUCCESS"
		default:
			require.Equal(t, "place", e.Kind)
		}
		if ended {
			break
		}
	}
	assert.GreaterOrEqual(t, lost, 2)
	assert.EqualValues(t, lost, s.front.cuts.Load())
	s.front.cut.Store(0)
}

func TestAFeedThatStartsAnewSaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	unknown := uint64(1_000_000)
	var kinds []string
	for e, err := range s.Events(t.Context(), api.EventFilter{Since: &unknown}) {
		require.NoError(t, err)
		kinds = append(kinds, e.Kind)
		if e.Kind == "missed" {
			assert.Zero(t, e.ID, "the account has no event")
			break
		}
	}
	assert.Equal(t, []string{"open", "missed"}, kinds)
}

func TestALogIsReadOnceAcrossLostConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.startDelegate(t)
	s.front.cut.Store(2)
	const lines = 300
	_, err := s.SubmitStage(t.Context(), api.StageRequest{ID: "a", Steps: []api.StepRequest{
		step("count", fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); done; sleep 1; echo end", lines)),
	}})
	require.NoError(t, err)
	var got []string
	for line, err := range s.FollowLog(t.Context(), "a/count", 0) {
		if err != nil {
			continue
		}
		assert.EqualValues(t, len(got), line.Pos)
		got = append(got, line.Text)
	}
	assert.Positive(t, s.front.cuts.Load())
	require.Greater(t, len(got), lines)
	for i := range lines {
		assert.Equal(t, fmt.Sprintf("line %d\n", i), got[i])
	}
	assert.Contains(t, got, "end\n")

	for line, err := range s.FollowLog(t.Context(), "a/count", lines-1) { // the archive
		if err == nil {
			assert.EqualValues(t, lines-1, line.Pos)
			break
		}
	}
	s.front.cut.Store(0)
}
