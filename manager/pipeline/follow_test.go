package pipeline

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// Two workers may deliver the end of a step and the end of its stage in any order.
func TestTheEndOfAStageCarriesTheResultsOfItsSteps(t *testing.T) {
	t.Parallel()
	tracked := store.Stage{Account: "acme", ID: "r.build", Run: "r", Node: "pipeline.stages.build", Attempt: 1}
	rows := map[string]store.Step{"test": {Stage: "r.build", ID: "test", Node: "pipeline.stages.build.spec.execution.steps.test", Attempt: 1}}
	state := api.Stage{
		Status: api.Success,
		Steps:  []api.StepState{{ID: "test", Status: api.Success, OutputVars: map[string]string{"V": "1"}}, {ID: "other", Status: api.Success}},
	}
	f := &follower{sent: map[string]map[string]bool{"r.build": {"test": true}}}
	events, _ := f.events(tracked, &state, rows)
	require.Len(t, events, 1, "the end of the step was sent before")
	assert.Equal(t, engine.StageEnded, events[0].Kind)
	require.Len(t, events[0].Steps, 1)
	assert.Equal(t, rows["test"].Node, events[0].Steps[0].Node)
	assert.Equal(t, map[string]string{"V": "1"}, events[0].Steps[0].Result.Outputs)
}
