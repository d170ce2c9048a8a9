package definition

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// oneStage returns a pipeline with one stage. Its spec has the lines of spec and one step.
func oneStage(spec string) Source {
	indented := "          " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n          ")
	return source(fmt.Sprintf(`pipeline:
  name: p
  identifier: p
  stages:
    - stage:
        name: build
        identifier: build
        type: CI
        spec:
%s
          execution:
            steps:
              - step: {name: a, identifier: a, type: Run, spec: {image: tool, command: make}}
`, indented))
}

func codes(problems Problems) []string {
	all := []string{}
	for _, p := range problems {
		all = append(all, p.Code)
	}
	return all
}

func TestIgnoredKeysThatAskForNothingGiveNoWarning(t *testing.T) {
	t.Parallel()
	_, problems := Read(oneStage(`
caching: {enabled: false, paths: []}
buildIntelligence: {enabled: "false"}
infrastructure:
  type: KubernetesDirect
  spec: {nodeSelector: {}, tolerations: [], labels: {}, priorityClassName: "", automountServiceAccountToken: false, harnessImageConnectorRef: account.harnessImage}
`), Options{})
	require.Empty(t, problems)
	_, problems = Read(oneStage(`
caching: {enabled: true}
infrastructure:
  type: KubernetesDirect
  spec: {tolerations: [{key: dedicated}], automountServiceAccountToken: true, harnessImageConnectorRef: other}
`), Options{})
	require.Equal(t, []string{"ignored-key", "ignored-key"}, codes(problems))
}

func TestAStageOnInfrastructureOfTheTypeCloudHasARuntime(t *testing.T) {
	t.Parallel()
	p, problems := Read(oneStage("infrastructure: {type: cloud, spec: {os: MacOS, arch: Arm64, size: large}}"), Options{})
	require.Empty(t, problems)
	s := p.Stages[0].Stage
	require.Nil(t, s.Infrastructure)
	require.Equal(t, map[string]any{"type": "Cloud", "spec": map[string]any{"size": "large"}}, s.Runtime.Plain())
	require.Equal(t, map[string]any{"os": "MacOS", "arch": "Arm64"}, s.Platform.Plain())
	p, problems = Read(oneStage("platform: {os: Linux}\ninfrastructure: {type: Cloud}"), Options{})
	require.Empty(t, problems)
	require.Equal(t, map[string]any{"os": "Linux"}, p.Stages[0].Stage.Platform.Plain())
}

func TestAStageWithInfrastructureAndRuntimeRunsOnItsInfrastructure(t *testing.T) {
	t.Parallel()
	p, problems := Read(oneStage("runtime: {type: Cloud, spec: {}}\ninfrastructure: {type: KubernetesDirect, spec: {}}"), Options{})
	require.Equal(t, []string{"exactly-one"}, codes(problems))
	require.False(t, problems.Errors())
	require.Nil(t, p.Stages[0].Stage.Runtime)
	require.Equal(t, "KubernetesDirect", p.Stages[0].Stage.Infrastructure.Type)
}

func TestAFailureStrategyWithoutErrorsNeverApplies(t *testing.T) {
	t.Parallel()
	p, problems := Read(source(`pipeline:
  name: p
  identifier: p
  stages:
    - stage:
        name: s
        identifier: s
        type: CI
        failureStrategies: [{onFailure: {errors: [], action: {type: Ignore}}}]
        spec: {execution: {steps: [{step: {name: a, identifier: a, type: Run, spec: {command: make}}}]}}
`), Options{})
	require.Equal(t, []string{"missing-key"}, codes(problems))
	require.NotNil(t, p)
	require.Empty(t, p.Stages[0].Stage.FailureStrategies[0].Errors)
}

func TestRegistriesMayBeNamedByRegistryRef(t *testing.T) {
	t.Parallel()
	text := string(oneStage("").Text)
	step := "type: BuildAndPushDockerRegistry, spec: {registryRef: images, repo: web, tags: [latest]}"
	_, problems := Read(source(strings.Replace(text, "type: Run, spec: {image: tool, command: make}", step, 1)), Options{})
	require.Empty(t, problems)
	_, problems = Read(source(strings.Replace(text, "type: Run, spec: {image: tool, command: make}", strings.Replace(step, "registryRef: images, ", "", 1), 1)), Options{})
	require.ErrorContains(t, problems, "needs the key connectorRef")
}

func TestSettingsOfTheMachineThatHaveNoEffectGiveAWarning(t *testing.T) {
	t.Parallel()
	_, problems := Read(oneStage("runtime: {type: Cloud, spec: {size: large, imageSpec: {imageName: system}}}"), Options{})
	require.Equal(t, []string{"ignored-key"}, codes(problems))
	require.Equal(t, "pipeline.stages[0].stage.spec.runtime.spec.imageSpec", problems[0].Path)
}

func TestIdentifiersWithADashAreReadWithAWarning(t *testing.T) {
	t.Parallel()
	text := strings.Replace(string(oneStage("").Text), "identifier: build", "identifier: build-it", 1)
	p, problems := Read(source(text), Options{})
	require.Equal(t, []string{"bad-identifier"}, codes(problems))
	require.False(t, problems.Errors())
	require.Equal(t, "build-it", p.Stages[0].Stage.Identifier)
}

// A template asks for the connector of a cluster, and the delegate of the stage has a cluster anyway.
func TestInputsOfKeysWithoutAnEffectNeedNoValue(t *testing.T) {
	t.Parallel()
	infrastructure := oneStage(`
infrastructure:
  type: KubernetesDirect
  spec: {connectorRef: <+input>, podSpecOverlay: <+input>, initTimeout: <+input>, namespace: <+input>.default(builds), harnessImageConnectorRef: <+input>, unknown: [<+input>]}
`)
	p, problems := Read(infrastructure, Options{})
	require.Equal(t, []string{"ignored-key", "unknown-key"}, codes(problems))
	spec := p.Stages[0].Stage.Infrastructure.Spec
	require.Nil(t, spec.Get("connectorRef"))
	require.Nil(t, spec.Get("initTimeout"))
	require.Equal(t, "builds", spec.Get("namespace").Text())
	p, problems = Read(infrastructure, Options{Inputs: map[string]string{"infrastructure.spec.connectorRef": "cluster"}})
	require.Equal(t, []string{"ignored-key", "unknown-key"}, codes(problems))
	require.Equal(t, "cluster", p.Stages[0].Stage.Infrastructure.Spec.Get("connectorRef").Text())
	_, problems = Read(oneStage("cloneCodebase: <+input>"), Options{})
	require.Equal(t, []string{"missing-input"}, codes(problems))
}

func TestAUnifiedPipelineWithoutStepsOfItsStagesIsRecognized(t *testing.T) {
	t.Parallel()
	for _, stages := range []string{"{id: a, chain: {uses: default/other}}", "{parallel: {stages: [{id: a, steps: [{run: {script: make}}]}]}}"} {
		form, err := FormOf(source("pipeline: {clone: {enabled: false}, stages: [" + stages + "]}"))
		require.NoError(t, err)
		require.Equal(t, Unified, form, stages)
	}
}
