package engine

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheEngineRunsStepsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	m, err := New(&definition.Pipeline{Identifier: "p", Stages: []definition.StageItem{{Stage: &definition.Stage{
		Identifier: "build", Type: "CI", Steps: []definition.StepItem{
			{Step: &definition.Step{Identifier: "a", Type: "Run"}}, {Step: &definition.Step{Identifier: "b", Type: "Run"}},
		},
	}}}})
	require.NoError(t, err)
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	s, commands, err := m.Start(Run{ID: "r", StartedAt: now})
	require.NoError(t, err)
	require.Len(t, commands, 1)
	assert.Equal(t, OpenStage, commands[0].Kind)

	apply := func(e Event) []Command {
		data, err := json.Marshal(s)
		require.NoError(t, err)
		s = nil
		require.NoError(t, json.Unmarshal(data, &s))
		e.Time, e.Attempt = now, 1
		_, commands, err := m.Apply(s, e)
		require.NoError(t, err)
		return commands
	}
	const stage = "pipeline.stages.build"
	commands = apply(Event{Kind: StageOpened, Node: stage})
	require.Len(t, commands, 1)
	assert.Equal(t, stage+".spec.execution.steps.a", commands[0].Steps[0].Node)
	commands = apply(Event{Kind: StepEnded, Node: commands[0].Steps[0].Node, Result: &Result{}})
	require.Len(t, commands, 1)
	assert.Equal(t, "b", commands[0].Steps[0].Identifier)
	commands = apply(Event{Kind: StepEnded, Node: commands[0].Steps[0].Node, Result: &Result{}})
	require.Len(t, commands, 1)
	assert.Equal(t, FinishStage, commands[0].Kind)
	assert.Empty(t, apply(Event{Kind: StageEnded, Node: stage, Result: &Result{}}))
	assert.Equal(t, Succeeded, s.Root().Status)
}
