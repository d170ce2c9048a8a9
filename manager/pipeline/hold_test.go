package pipeline_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

func TestAFailedStepWaitsForAPersonAndItsStageIsRetriedFromAStep(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 1))
	url := serve(t, s)
	yaml := oneStage("held", `
              - step: {identifier: first, name: first, type: Run, spec: {command: "echo once more >> count; grep -c . count > n; export N=$(cat n)", outputVariables: [{name: N}]}}
              - step: {identifier: second, name: second, type: Run, spec: {command: "test <+steps.first.output.outputVariables.N> = 2"}}
`)
	status, body := call(t, "POST", url+"/api/runs", encode(t, api.RunRequest{ID: "held", YAML: yaml, HoldFailed: "1"}))
	assert.Equal(t, 400, status)
	assert.Contains(t, body, "hold_failed")
	status, body = call(t, "POST", url+"/api/runs", encode(t, api.RunRequest{ID: "held", YAML: yaml, HoldFailed: "1h"}))
	require.Equal(t, 202, status, body)
	var r api.Run
	for r.Status != "INTERVENTION_WAITING" {
		change, err := s.Changes(t.Context(), account, "held", r.Version)
		require.NoError(t, err)
		r = change.Run
		require.Empty(t, r.EndedAt, "the failed step must hold the run")
	}
	status, body = call(t, "POST", url+"/api/runs/held/retry", encode(t, api.Order{Node: "pipeline.stages.build.spec.execution.steps.first"}))
	require.Equal(t, 200, status, body)
	_, body = call(t, "GET", url+"/api/runs/held?wait=60", "")
	require.NoError(t, json.Unmarshal([]byte(body), &r))
	assert.Equal(t, "SUCCEEDED", r.Status, tree(r))
	assert.Equal(t, 2, node(t, r, ".first").Attempt)
	assert.Equal(t, 1, node(t, r, "stages.build").Attempt, "the stage is the same: its files are still there")
}
