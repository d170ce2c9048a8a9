package api_test

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

const greeting = `
pipeline:
  identifier: greeting
  name: Greeting
  variables:
    - {name: who, type: String, value: <+input>.default(world)}
  stages:
    - stage:
        identifier: only
        name: only
        type: CI
        spec:
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: first, name: first, type: Run, spec: {command: echo hello <+pipeline.variables.who>}}
              - step: {identifier: second, name: second, type: Run, spec: {command: exit 1}}
`

func TestARunIsFollowedAcrossLostConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.startDelegate(t)
	s.front.cut.Store(2)
	started, err := s.StartRun(t.Context(), api.RunRequest{YAML: greeting, Inputs: map[string]string{"pipeline.variables.who": "all"}})
	require.NoError(t, err)
	nodes, last := map[string]api.Node{}, int64(0)
	var run api.Run
	for change, err := range s.RunChanges(t.Context(), started.ID, 0) {
		if err != nil {
			continue
		}
		require.Greater(t, change.Run.Version, last, "a change comes once")
		last, run = change.Run.Version, change.Run
		for _, n := range change.Nodes {
			nodes[n.Path] = n
		}
	}
	s.front.cut.Store(0)
	assert.Equal(t, "FAILED", run.Status)
	whole, err := s.WaitRun(t.Context(), started.ID)
	require.NoError(t, err)
	assert.Len(t, whole.Nodes, len(nodes))
	for _, n := range whole.Nodes {
		assert.Equal(t, n, nodes[n.Path])
	}
	for _, err := range s.RunChanges(t.Context(), started.ID, last) {
		require.NoError(t, err)
		t.Error("nothing follows the end")
	}

	only, second := nodes["pipeline.stages.only"], nodes["pipeline.stages.only.spec.execution.steps.second"]
	require.NotNil(t, second.ExitCode)
	assert.Equal(t, 1, *second.ExitCode)
	first := nodes["pipeline.stages.only.spec.execution.steps.first"]
	for line, err := range s.Log(t.Context(), only.StageID+"/"+first.StepID) {
		require.NoError(t, err)
		assert.Equal(t, "hello all\n", line.Text)
		break
	}

	lines, place := map[string][]string{}, ""
	s.front.cut.Store(2)
	for part, err := range s.RunLogs(t.Context(), run.ID, "") {
		if err != nil { // the connection was cut
			continue
		}
		place = part.ID
		for _, l := range part.Lines {
			assert.EqualValues(t, len(lines[part.LogKey]), l.Pos)
			lines[part.LogKey] = append(lines[part.LogKey], l.Text)
		}
	}
	s.front.cut.Store(0)
	assert.Equal(t, []string{"hello all\n"}, lines[first.LogKey], "%v", lines)
	for _, err := range s.RunLogs(t.Context(), run.ID, place) {
		t.Errorf("nothing follows the end, but %v", err)
	}

	definition, err := s.RunDefinition(t.Context(), run.ID)
	require.NoError(t, err)
	assert.Equal(t, greeting, string(definition))
	watching, stop := context.WithCancel(t.Context())
	heard, other := map[string]string{}, api.Run{}
	for r, err := range s.RunEvents(watching) {
		if err != nil || heard[""] != "" && r.Status == "ABORTED" {
			break
		}
		if heard[r.ID] = cmp.Or(r.Status, "open"); r.ID == "" {
			other, err = s.RunAgain(t.Context(), run.ID, api.Order{})
			require.NoError(t, err)
			_, err = s.AbortRun(t.Context(), other.ID, api.Order{})
			require.NoError(t, err)
		}
	}
	stop()
	assert.Equal(t, "open", heard[""], "the feed began")

	inputs, err := s.RunInputs(t.Context(), run.ID)
	require.NoError(t, err)
	assert.Equal(t, []api.NodeValue{{Name: "pipeline.variables.who", Value: "all"}}, inputs)
	retried, err := s.RetryRun(t.Context(), run.ID, api.Order{Node: "pipeline.stages.only"})
	require.NoError(t, err)
	assert.False(t, retried.Ended())
	retried, err = s.WaitRun(t.Context(), run.ID)
	require.NoError(t, err)
	assert.Equal(t, "FAILED", retried.Status)
	again, err := s.RunAgain(t.Context(), run.ID, api.Order{By: "someone"})
	require.NoError(t, err)
	assert.EqualValues(t, 3, again.Number)
	_, err = s.AbortRun(t.Context(), again.ID, api.Order{Reason: "not needed"})
	require.NoError(t, err)
	_, err = s.WaitRun(t.Context(), again.ID)
	require.NoError(t, err)
	_, err = s.AnswerRun(t.Context(), again.ID, api.Order{Node: "pipeline.stages.other", Answer: &api.Answer{Approve: true}})
	assert.True(t, api.IsStatus(err, http.StatusNotFound), "%v", err)
	var listed []string
	for r, err := range s.Runs(t.Context(), api.RunFilter{Pipeline: "greeting"}) {
		require.NoError(t, err)
		listed = append(listed, r.ID)
	}
	assert.Equal(t, []string{again.ID, other.ID, run.ID}, listed)
}

func TestPipelinesTriggersAndSettingsOfTheManagerAreKept(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	problems, err := s.Lint(t.Context(), api.RunRequest{YAML: "pipeline: {identifier: a, steps: b}"})
	require.NoError(t, err)
	assert.NotEmpty(t, problems)
	stored, err := s.SetPipeline(t.Context(), api.Pipeline{ID: "web", YAML: greeting})
	require.NoError(t, err)
	assert.EqualValues(t, 1, stored.Version)
	_, err = s.SetPipeline(t.Context(), api.Pipeline{ID: "web", YAML: greeting, Version: 7})
	assert.True(t, api.IsStatus(err, http.StatusConflict), "%v", err)
	saved, err := s.SetTrigger(t.Context(), api.Trigger{ID: "daily", Kind: "cron", Cron: "@daily", Pipeline: "web"})
	require.NoError(t, err)
	assert.False(t, saved.Next.IsZero())
	got, err := s.Trigger(t.Context(), "daily")
	require.NoError(t, err)
	assert.Equal(t, saved, got)
	names := map[string]bool{}
	for p, err := range s.Pipelines(t.Context()) {
		require.NoError(t, err)
		names[p.ID] = true
	}
	for p, err := range s.Triggers(t.Context()) {
		require.NoError(t, err)
		names[p.ID] = true
	}
	assert.Equal(t, []string{"daily", "web"}, slices.Sorted(maps.Keys(names)))
	require.NoError(t, s.DeleteTrigger(t.Context(), "daily"))
	require.NoError(t, s.DeletePipeline(t.Context(), "web"))
	_, err = s.Pipeline(t.Context(), "web")
	assert.True(t, api.IsStatus(err, http.StatusNotFound), "%v", err)

	require.NoError(t, s.SetLimit(t.Context(), api.Limit{Group: "pipeline:web", Max: 2}))
	limits, err := s.Limits(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []api.Limit{{Group: "pipeline:web", Max: 2}}, limits)
	require.NoError(t, s.Pause(t.Context(), "maintenance"))
	waiting, err := s.SubmitStage(t.Context(), api.StageRequest{ID: "waits", Pipeline: "web", Selectors: []string{"gpu"}, Steps: []api.StepRequest{step("a", "true")}})
	require.NoError(t, err)
	assert.Contains(t, waiting.Reason, "the account is paused (maintenance)")
	results, err := s.AbortStages(t.Context(), "waits", "unknown")
	require.NoError(t, err)
	assert.Equal(t, []api.Status{api.Aborted, ""}, []api.Status{results[0].Status, results[1].Status})
	assert.Empty(t, results[0].Error)
	assert.Contains(t, results[1].Error, "not found")
	require.NoError(t, s.Resume(t.Context()))
	s.startDelegate(t)
	delegates, err := s.Delegates(t.Context())
	require.NoError(t, err)
	require.Len(t, delegates, 1)
	require.NoError(t, s.Drain(t.Context(), delegates[0].ID))
	delegates, err = s.Delegates(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "DRAINING", delegates[0].State)
	require.NoError(t, s.Undrain(t.Context(), delegates[0].ID))
	done, err := s.SubmitTask(t.Context(), api.TaskRequest{Type: "NO_SUCH_TYPE", QueueTimeoutMS: 100})
	require.NoError(t, err)
	done, err = s.WaitTask(t.Context(), done.ID)
	require.NoError(t, err)
	assert.NotEqual(t, api.Success, done.Status)
}
