package definition

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// file reads a file of testdata.
func file(t testing.TB, name string) Source {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return Source{Name: filepath.Base(name), Text: text}
}

func TestReadReturnsTheStagesAndStepsOfALinearPipeline(t *testing.T) {
	t.Parallel()
	p, problems := Read(file(t, "pipelines/linear.yaml"), Options{})
	require.Empty(t, problems)
	require.Equal(t, "linear", p.Identifier)
	require.Equal(t, "1.2", p.Variables[0].Value.Value)
	require.Equal(t, map[string]string{"team": "core", "empty": ""}, p.Tags)
	steps := p.Stages[0].Stage.Steps
	require.Len(t, steps, 2)
	require.Equal(t, "Sh", steps[0].Step.Spec.Get("shell").Text())
	require.True(t, steps[0].Step.Spec.Get("command").Block)
	require.Equal(t, Position{File: "linear.yaml", Line: 23, Column: 19}, steps[0].Step.Position)
}

func TestReadLeavesOutStagesOfOtherTypesIfItIsAsked(t *testing.T) {
	t.Parallel()
	text := "pipeline:\n  identifier: p\n  name: p\n  stages:\n    - stage: {identifier: d, name: d, type: Deployment, spec: {service: x}}\n" +
		"    - stage: {identifier: s, name: uses <+pipeline.name>, type: CI, spec: {execution: {steps: [{step: {identifier: a, name: a, type: Custom, spec: {x: 1}}}]}}}\n"
	_, problems := Read(source(text), Options{StepTypes: []string{"Custom"}})
	require.ErrorContains(t, problems, `the stage "d" has the type "Deployment"`)
	p, problems := Read(source(text), Options{StepTypes: []string{"Custom"}, SkipOtherStages: true})
	require.Len(t, problems, 2)
	require.Equal(t, "skipped-stage", problems[0].Code)
	require.Equal(t, "bad-name", problems[1].Code)
	require.Contains(t, p.Stages[0].Stage.Skip, "Deployment")
	require.Equal(t, "Custom", p.Stages[1].Stage.Steps[0].Step.Type)
}

func TestReadCopiesTheInfrastructureThatUseFromStageNames(t *testing.T) {
	t.Parallel()
	p, problems := Read(file(t, "pipelines/vm_pool.yaml"), Options{})
	require.Empty(t, problems)
	first, second := p.Stages[0].Stage, p.Stages[1].Stage
	require.Equal(t, first.Infrastructure, second.Infrastructure)
	require.NotSame(t, first.Infrastructure, second.Infrastructure)
}

func TestTimeoutsAreSumsOfTheirParts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "0s", "10s": "10s", "1h 30m": "1h30m0s", "1h30m": "1h30m0s", "2d": "48h0m0s", "1w 1d": "192h0m0s", " 15m ": "15m0s"} {
		got, err := ParseTimeout(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got.String(), text)
	}
	for _, text := range []string{"9s", "0m", "soon", "10", "10x", "m", "-5m", "1.5h", "99999999999h", "9999999999w", "11y"} {
		_, err := ParseTimeout(text)
		require.Error(t, err, text)
	}
}

func TestProblemsAreWrittenAsJSONWithTheirPositions(t *testing.T) {
	t.Parallel()
	_, problems := Read(source("pipeline:\n  identifier: 1\n  stages: []\n"), Options{})
	text, err := json.Marshal(problems[0])
	require.NoError(t, err)
	require.JSONEq(t, `{"file":"p.yaml","line":2,"column":15,"severity":"error","code":"bad-identifier","path":"pipeline.identifier",
		"text":"the identifier \"1\" is not valid","hint":"begin with a letter or _ and use letters, digits and _, at most 128"}`, string(text))
	var again Problem
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, problems[0], again)
}
