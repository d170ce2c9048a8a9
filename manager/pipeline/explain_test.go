package pipeline_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

const conditional = `
pipeline:
  identifier: c
  name: c
  stages:
    - stage:
        identifier: build
        name: build
        type: CI
        spec:
          platform: {os: Linux, arch: Arm64}
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step:
                  identifier: version
                  name: version
                  type: Run
                  spec:
                    command: export VERSION=1.2
                    outputVariables: [{name: VERSION}, {name: EXTRA}]
              - step:
                  identifier: release
                  name: release
                  type: Run
                  timeout: 5m
                  when: {stageStatus: Success, condition: <+steps.version.output.outputVariables.VERSION> == "1.2"}
                  spec:
                    image: alpine
                    command: echo <+steps.version.output.outputVariables.VERSION>
                    envVariables: {TOKEN: <+secrets.getValue("token")>}
              - step:
                  identifier: again
                  name: again
                  type: Run
                  spec: {command: echo}
                  failureStrategies: [{onFailure: {errors: [AllErrors], action: {type: Ignore}}}]
                  strategy: {parallelism: 2}
    - stage:
        identifier: broken
        name: broken
        type: CI
        when: {pipelineStatus: Failure}
        spec:
          platform: {os: Linux, arch: Arm64}
          runtime: {type: Docker, spec: {}}
          execution:
            steps: [{step: {identifier: s, name: s, type: Run, spec: {command: echo}}}]
`

func TestAnExplanationDecidesAsARunWithTheGivenOutputs(t *testing.T) {
	t.Parallel()
	const release = "pipeline.stages.build.spec.execution.steps.release"
	for given, want := range map[string]string{
		"version.VERSION=1.2":                        "SUCCEEDED",
		"steps.version.VERSION=1.2":                  "SUCCEEDED",
		"version.output.outputVariables.VERSION=1.3": "SKIPPED",
		"": "SKIPPED",
	} {
		outputs := map[string]string{}
		if name, value, ok := strings.Cut(given, "="); ok {
			outputs[name] = value
		}
		e, err := pipeline.Explain(t.Context(), api.RunRequest{YAML: conditional}, outputs, pipeline.Settings{}, nil)
		require.NoError(t, err)
		n := node(t, e.Run, ".release")
		assert.Equal(t, want, n.Status, "%s\n%s", given, tree(e.Run))
		assert.Equal(t, "Success", e.Plans[release].When)
		assert.Contains(t, e.Plans[release].Condition, `== "1.2"`)
		assert.Equal(t, given == "", strings.Contains(strings.Join(e.Assumed, " "), "version.VERSION"))
		assert.Contains(t, e.Assumed, "version.EXTRA")
		if want != "SUCCEEDED" {
			assert.Nil(t, e.Plans[release].Step)
			continue
		}
		require.NotNil(t, e.Plans[release].Step)
		assert.Contains(t, string(e.Plans[release].Step.Data), "echo 1.2")
		assert.Contains(t, string(e.Plans[release].Step.Data), "${{secrets.", "the value of a secret is not known")
		assert.Equal(t, "5m0s", e.Plans[release].Timeout.String())
	}
}

func TestAnExplanationHasEveryNodeWithItsPlan(t *testing.T) {
	t.Parallel()
	e, err := pipeline.Explain(t.Context(), api.RunRequest{YAML: conditional}, nil, pipeline.Settings{}, nil)
	require.NoError(t, err)
	assert.Equal(t, "SUCCEEDED", e.Run.Status, tree(e.Run))
	stage := e.Plans["pipeline.stages.build"].Stage
	require.NotNil(t, stage)
	assert.Equal(t, "local", stage.Infra)
	assert.Contains(t, stage.Selectors, "arm64")
	assert.Equal(t, []string{"AllErrors: Ignore"}, e.Plans["pipeline.stages.build.spec.execution.steps.again_1"].Failure)
	assert.Equal(t, "SKIPPED", node(t, e.Run, ".broken").Status)
}

func TestAnOutputOfAStepThatDoesNotRunIsRefused(t *testing.T) {
	t.Parallel()
	_, err := pipeline.Explain(t.Context(), api.RunRequest{YAML: conditional}, map[string]string{"versions.VERSION": "1"}, pipeline.Settings{}, nil)
	require.ErrorIs(t, err, pipeline.ErrInvalid)
	require.ErrorContains(t, err, "versions.VERSION")
}

func TestAnExplanationOfAConnectorOfAnotherKindFailsTheStep(t *testing.T) {
	t.Parallel()
	text := strings.Replace(conditional, "image: alpine", "{image: alpine, connectorRef: missing", 1)
	text = strings.Replace(text, "{image: alpine, connectorRef: missing", "image: alpine\n                    connectorRef: missing", 1)
	e, err := pipeline.Explain(t.Context(), api.RunRequest{YAML: text}, map[string]string{"version.VERSION": "1.2"},
		settingsOf(t, `{"connectors":{"missing":{"kind":"git","url":"https://git.example"}}}`), nil)
	require.NoError(t, err)
	n := node(t, e.Run, ".release")
	assert.Equal(t, "FAILED", n.Status)
	assert.Contains(t, n.Reason, "of the kind git")
}

func TestARunFromAStageLeavesOutTheStagesBeforeIt(t *testing.T) {
	t.Parallel()
	stage := func(id string) string {
		return "{stage: {identifier: " + id + ", name: s, type: CI, spec: {platform: {os: Linux, arch: Arm64}, runtime: {type: Docker, spec: {}}, " +
			"execution: {steps: [{step: {identifier: s, name: s, type: Run, spec: {command: echo}}}]}}}}"
	}
	text := "pipeline: {identifier: p, name: p, stages: [" + stage("a") + ", {parallel: [" + stage("b") + ", " + stage("c") + "]}, " + stage("d") + "]}"
	e, err := pipeline.Explain(t.Context(), api.RunRequest{YAML: text, From: "c"}, nil, pipeline.Settings{}, nil)
	require.NoError(t, err)
	for id, want := range map[string]string{"a": "SKIPPED", "b": "SUCCEEDED", "c": "SUCCEEDED", "d": "SUCCEEDED"} {
		assert.Equal(t, want, node(t, e.Run, "stages."+id).Status, id)
	}
	for want, req := range map[string]api.RunRequest{
		`no stage "x"`: {From: "x"}, "cannot be combined": {From: "a", Stages: []string{"a"}},
	} {
		req.YAML = text
		_, err := pipeline.Explain(t.Context(), req, nil, pipeline.Settings{}, nil)
		require.ErrorIs(t, err, pipeline.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
}

func TestStepTypesOfTheSettingsAreKnown(t *testing.T) {
	t.Parallel()
	text := strings.Replace(conditional, "type: Run\n                  spec: {command: echo}", "type: Scan\n                  spec: {level: high}", 1)
	require.Contains(t, text, "Scan")
	settings := pipeline.Settings{}
	assert.True(t, pipeline.Lint(api.RunRequest{YAML: text}, settings, nil).Errors())
	yaml := "types: {Scan: {image: 'example/scan:1', settings: [{field: level, variable: LEVEL}]}}"
	settings, err := pipeline.ReadSettings([]byte(yaml))
	require.NoError(t, err)
	assert.False(t, pipeline.Lint(api.RunRequest{YAML: text}, settings, nil).Errors())
	e, err := pipeline.Explain(t.Context(), api.RunRequest{YAML: text}, nil, settings, nil)
	require.NoError(t, err)
	assert.Contains(t, string(e.Plans["pipeline.stages.build.spec.execution.steps.again_0"].Step.Data), "PLUGIN_LEVEL")
}

func TestAnExplanationAssumesConnectorsAndNamesThem(t *testing.T) {
	t.Parallel()
	e, err := pipeline.Explain(t.Context(), api.RunRequest{Inputs: map[string]string{"codebase.build": "tag:v1"}, YAML: `
pipeline:
  identifier: c
  name: c
  properties: {ci: {codebase: {connectorRef: account.source, repoName: web, build: <+input>}}}
  stages:
    - stage:
        identifier: build
        name: build
        type: CI
        spec:
          cloneCodebase: true
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: a, name: a, type: Run, spec: {image: "tool:1", connectorRef: images, command: "echo <+codebase.tag>"}}
              - step: {identifier: b, name: b, type: SaveCacheS3, spec: {connectorRef: org.cloud, bucket: b, region: r, key: k, sourcePaths: [a]}}
`}, nil, pipeline.Settings{}, nil)
	require.NoError(t, err)
	assert.Equal(t, "SUCCEEDED", e.Run.Status)
	assert.Equal(t, map[string]string{"source": "git", "images": "registry", "cloud": "aws"}, e.Missing)
	assert.Contains(t, string(e.Plans["pipeline.stages.build.spec.execution.steps.a"].Step.Data), `"image":"tool:1"`)
	assert.Contains(t, string(e.Plans["pipeline.stages.build"].Stage.Init), `https://source.invalid/web`)
}

func settingsOf(t *testing.T, text string) pipeline.Settings {
	t.Helper()
	var s pipeline.Settings
	require.NoError(t, json.Unmarshal([]byte(text), &s))
	return s
}
