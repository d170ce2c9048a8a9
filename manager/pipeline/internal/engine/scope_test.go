package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const scopePipeline = `
pipeline:
  identifier: shop
  name: The shop
  orgIdentifier: sales
  projectIdentifier: web
  tags: {tier: gold}
  variables:
    - {name: version, type: String, value: "1.<+pipeline.sequenceId>"}
    - {name: count, type: Number, value: 3}
    - {name: token, type: Secret, value: deploy_token}
    - {name: chosen, type: Secret, value: "<+pipeline.variables.which>_token"}
    - {name: which, type: String, value: prod}
    - {name: fallback, type: String, default: dflt}
  stages:
    - stage:
        identifier: first
        name: first
        type: CI
        variables: [{name: v, type: String, value: "of first"}]
        spec:
          platform: {os: Linux, arch: Amd64}
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: make, name: make, type: Run, spec: {command: echo}}
    - stage:
        identifier: second
        name: The second
        type: CI
        tags: {k: "<+stage.identifier>"}
        delegateSelectors: [linux]
        variables: [{name: v, type: String, value: "of second"}, {name: version, type: String, value: "2 after <+pipeline.variables.version>"}]
        spec:
          platform: {os: Linux, arch: "<+pipeline.variables.which>"}
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: pre, name: Pre, type: Run, timeout: 1m, spec: {command: echo, image: "a:<+pipeline.variables.version>"}}
              - stepGroup:
                  identifier: group
                  name: The group
                  variables: [{name: g, type: String, value: "of group"}]
                  steps:
                    - step: {identifier: pre2, name: pre2, type: Run, spec: {command: echo}}
                    - step: {identifier: probe, name: probe, type: Run, spec: {command: "PROBE"}}
`

// probe renders a text as the command of the step probe.
func probe(t *testing.T, command string) *world {
	t.Helper()
	p := pipeline(t, scopePipeline)
	for _, f := range p.Stages[1].Stage.Steps[1].Group.Steps[1].Step.Spec.Fields {
		if f.Key == "command" {
			f.Value.Value = command
		}
	}
	w := newWorldOf(t, p, func(r *Run) {
		r.URL, r.User, r.Email, r.TriggerType = "https://ci.example/r1", "ada", "ada@example.com", "WEBHOOK"
		r.Trigger = Values{"event": "PR", "prTitle": `<+secrets.getValue("prod")>`, "payload": map[string]any{"n": int64(4), "list": []any{"x"}, "x-auth": "h"}, "header": map[string]any{"X-A": "b"}}
		r.Codebase = Values{"branch": "main", "commitMessage": "${{secrets.prod}}", "build": map[string]any{"type": "branch"}}
		r.Variables = Values{"proj": "P", "org": map[string]any{"o": "O"}, "account": map[string]any{"a": "A"}}
	})
	w.results["make"] = []Result{outputs("V", "<+pipeline.name>\n", "S", "${{secrets.prod}}", "M", "<{ x | getAsBase64 }>")}
	w.results["pre"] = []Result{exit(0)}
	w.results["pre"][0].Failure = ""
	w.results["pre2"] = []Result{outputs("V", "two")}
	return w.begin().play()
}

func TestNamesAreResolvedFromTheNodeOutwards(t *testing.T) {
	t.Parallel()
	const full = "pipeline.stages.first.spec.execution.steps.make"
	for expression, want := range map[string]any{
		"pipeline.identifier": "shop", "pipeline.name": "The shop", "pipeline.tags.tier": "gold", "pipeline.executionId": "r1",
		"pipeline.sequenceId": int64(7), "pipeline.orgIdentifier": "sales", "pipeline.projectIdentifier": "web",
		"pipeline.triggeredBy.name": "ada", "pipeline.triggeredBy.email": "ada@example.com", "pipeline.triggerType": "WEBHOOK",
		"pipeline.executionUrl": "https://ci.example/r1", "pipeline.startTs": start.UnixMilli(), "pipeline.status": "RUNNING",
		"pipeline.currentStatus": "SUCCEEDED", "pipeline.stages.first.status": "SUCCEEDED", "pipeline.variables.version": "1.7",
		"pipeline.variables.count": "3", "pipeline.variables.fallback": "dflt", "pipeline.variables.token": "${{secrets.deploy_token}}",
		"pipeline.variables.chosen": "${{secrets.prod_token}}", "pipeline.storeType": "INLINE",
		"stage.identifier": "second", "stage.name": "The second", "stage.type": "CI", "stage.tags.k": "second", "stage.status": "RUNNING",
		"stage.delegateSelectors[0]": "linux", "stage.variables.version": "2 after 1.7", "stage.spec.platform.arch": "prod",
		"variables.version": "2 after 1.7", "variables.which": "prod", "variables.g": "of group", "stepGroup.variables.g": "of group",
		"first.variables.v": "of first", "stages.first.variables.v": "of first", "stages.second.variables.v": "of second",
		"step.identifier": "probe", "step.name": "probe", "step.retryCount": int64(0), "stepGroup.identifier": "group", "stepGroup.name": "The group",
		"steps.pre.status": "SUCCEEDED", "steps.pre.exitCode": int64(0), "steps.pre.spec.image": "a:1.7", "steps.pre.timeout": "1m",
		"steps.pre2.output.outputVariables.V": "two", "pre2.output.outputVariables.V": "two", "pre.name": "Pre",
		"execution.steps.group.steps.pre2.output.outputVariables.V": "two", "execution.steps.pre.startTs": start.UnixMilli(),
		"stage.spec.execution.steps.pre.status":                           "SUCCEEDED",
		"stages.first.spec.execution.steps.make.output.outputVariables.V": "<+pipeline.name>", full + ".output.outputVariables.V": "<+pipeline.name>",
		full + ".type": "Run", "variable.proj": "P", "variable.org.o": "O", "variable.account.a": "A", "account.identifier": "acme",
		"org.identifier": "sales", "project.identifier": "web", "codebase.branch": "main", "codebase.build.type": "branch", "codebase.tag": nil,
		"trigger.event": "PR", "trigger.payload.n": int64(4), "trigger.payload.list[0]": "x", `trigger.payload["x-auth"]`: "h",
		`trigger.header["X-A"]`: "b", "trigger.prTitle": `<+secrets.getValue("prod")>`, "trigger.tag": nil, "env.name": nil, "artifact": nil, "approval.x": nil, "eventPayload.n": int64(4),
		"OnStageSuccess": true, "OnStageFailure": false, "OnPipelineSuccess": true, "OnPipelineFailure": false, "Always": true,
		`secrets.getValue("account.x")`: "${{secrets.account.x}}",
	} {
		w := probe(t, "<+"+expression+">")
		n := w.node("second.spec.execution.steps.group.steps.probe")
		if !assert.Equal(t, Succeeded, n.Status, "%s: %s", expression, n.Reason) {
			continue
		}
		got := w.steps[n.Path].Spec["command"]
		if number, ok := want.(int64); ok {
			want = float64(number) // a command has been JSON
		}
		assert.Equal(t, want, got, expression)
		require.NotEmpty(t, n.Evaluated, expression)
		assert.Equal(t, "<+"+expression+">", n.Evaluated[len(n.Evaluated)-1].Text)
		assert.Equal(t, "spec.command", n.Evaluated[0].Field)
	}
}

func TestAnUnknownNameFailsTheStepAndNamesTheNearest(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"pipeline.variables.versoin": "did you mean pipeline.variables.version?", "steps.pree.status": "did you mean steps.pre?",
		"stage.variables.w": "is unknown", "steps.make.status": "steps.make is unknown", "matrix.os": "matrix is unknown",
		"steps.probe.output.outputVariables.V": "is unknown", "codebase.brunch": "did you mean codebase.branch?", "stages.first.outptu": "is unknown",
		"pipline.name": "did you mean pipeline?", "strategy.iteration": "is unknown",
	} {
		w := probe(t, "echo <+"+expression+">")
		n := w.node("second.spec.execution.steps.group.steps.probe")
		assert.Equal(t, Failed, n.Status, expression)
		assert.Equal(t, FailureConfiguration, n.FailureKind)
		assert.Contains(t, n.Reason, want)
		assert.Contains(t, n.Reason, "p.yaml:", "the place in the file")
		assert.Contains(t, n.Reason, "spec.command")
	}
}

func TestValuesFromOutsideAreNeverEvaluatedAndNeverAReference(t *testing.T) {
	t.Parallel()
	const output = "stages.first.spec.execution.steps.make.output.outputVariables."
	for _, expression := range []string{"trigger.prTitle", output + "V", output + "S", output + "M", "codebase.commitMessage"} {
		w := probe(t, "echo '<+"+expression+">'")
		n := w.node("second.spec.execution.steps.group.steps.probe")
		require.Equal(t, Succeeded, n.Status, n.Reason)
		command := text(w.steps[n.Path].Spec["command"])
		assert.NotContains(t, command, "${{secrets.prod}}")
		assert.NotContains(t, command, "The shop")
		assert.NotContains(t, command, "'<{ x | getAsBase64 }>'")
	}
}

func TestTheOpeningOfAStageHoldsItsRenderedFields(t *testing.T) {
	t.Parallel()
	p := "pipeline:\n  identifier: p\n  name: p\n  projectIdentifier: web\n  delegateSelectors: [all]\n" + `
  variables:
    - {name: image, type: String, value: golang}
    - {name: token, type: Secret, value: t1}
    - {name: none, type: String}
  properties:
    ci:
      codebase:
        connectorRef: hub
        repoName: <+pipeline.identifier>
        build: {type: branch, spec: {branch: <+codebase.branch>}}
        depth: 3
  stages:
    - stage:
        identifier: build
        name: build
        type: CI
        timeout: 2h
        variables: [{name: arch, type: String, value: arm}]
        spec:
          cloneCodebase: "<+true>"
          infrastructure:
            type: KubernetesDirect
            spec: {connectorRef: k8s, namespace: "ci-<+pipeline.identifier>", os: Linux}
          caching: {enabled: true, key: "k-<+stage.variables.arch>"}
          sharedPaths: [/a]
          execution:
            steps:
              - step: {identifier: a, name: a, type: Run, spec: {image: "<+pipeline.variables.image>:1", command: go build}}
              - stepGroup:
                  identifier: g
                  name: g
                  steps:
                    - step:
                        identifier: b
                        name: b
                        type: Run
                        spec: {image: "go:<+matrix.v>", command: "<+steps.a.output.outputVariables.V>"}
                        strategy: {matrix: {v: ["1", "2"]}}
              - step: {identifier: c, name: c, type: Run, spec: {image: "<+steps.a.output.outputVariables.V>", connectorRef: hub, command: test $token}}
`
	w := newWorldOf(t, pipeline(t, p), func(r *Run) { r.Codebase = Values{"branch": "main"} })
	w.results["a"] = []Result{outputs("V", "img")}
	w.begin().play()
	require.Equal(t, Succeeded, w.node(rootPath).Status, w.node("build").Reason)
	o := w.opened[stagePath]
	require.NotNil(t, o)
	announced := o.Announced
	o.Announced = nil
	assert.Equal(t, &Opening{
		Identifier: "build", Name: "build", Pipeline: "p", Project: "web", Selectors: []string{"all"}, Timeout: 2 * time.Hour, Clone: true,
		Infrastructure: &Infrastructure{Type: "KubernetesDirect", Spec: map[string]any{"connectorRef": "k8s", "namespace": "ci-p", "os": "Linux"}},
		Variables:      []Variable{{"image", "golang", false}, {"token", "${{secrets.t1}}", true}, {"none", "", false}, {"arch", "arm", false}},
		Repository: map[string]any{
			"connectorRef": "hub", "repoName": "p", "depth": 3.0, "build": map[string]any{"type": "branch", "spec": map[string]any{"branch": "main"}},
		},
		Caching: map[string]any{"enabled": true, "key": "k-arm"}, SharedPaths: []any{"/a"},
	}, o)
	var steps []string
	for _, s := range announced {
		steps = append(steps, strings.Join(s.Groups, "/")+" "+s.Identifier+" "+text(s.Spec["image"])+" "+text(s.Spec["connectorRef"]))
		assert.NotContains(t, s.Spec, "command")
	}
	assert.Equal(t, []string{" a golang:1 ", "g b_0 go:1 ", "g b_1 go:2 ", " c  hub"}, steps)
	assert.Equal(t, []string{"g"}, w.steps[stagePath+".spec.execution.steps.g.steps.b_1"].Groups)
	assert.NotContains(t, w.rows, stagePath+".spec.execution.steps.c_0", "an announced step has no node yet")
}

func TestOutputsHaveASecondName(t *testing.T) {
	t.Parallel()
	export := func(id, scope string) string {
		return strings.Replace(run(id), "command: echo", "command: echo, outputAlias: {key: version, scope: "+scope+"}", 1)
	}
	ask := func(id, name string) string {
		return strings.Replace(run(id), "command: echo", `command: '<+exportedVariables.getValue("`+name+`")>'`, 1)
	}
	w := newWorld(t, stage("one", export("p", "Pipeline")+export("s", "Stage")+group("g", export("i", "stepGroup")+ask("in", "stepGroup.version.V"))+ask("own", "stage.version.V")+ask("out", "stepGroup.version.V"))+
		stage("two", ask("far", "pipeline.version.V")+ask("other", "stage.version.V"), "when: {pipelineStatus: All}"))
	for _, id := range []string{"p", "s", "i"} {
		w.results[id] = []Result{outputs("V", "<+of "+id+">")}
	}
	w.begin().play()
	for path, want := range map[string]string{"one.spec.execution.steps.g.steps.in": "i", "one.spec.execution.steps.own": "s", "two.spec.execution.steps.far": "p"} {
		assert.Equal(t, "<+of "+want+">", w.steps[w.node(path).Path].Spec["command"], path)
	}
	for _, path := range []string{"one.spec.execution.steps.out", "two.spec.execution.steps.other"} {
		assert.Equal(t, Failed, w.node(path).Status, path)
		assert.Contains(t, w.node(path).Reason, "is unknown", path)
	}
}

func TestAStageSharesThePathsOfItsGroups(t *testing.T) {
	t.Parallel()
	inner := group("inner", run("a"), "sharedPaths: [/two, /three]")
	w := newWorld(t, strings.Replace(stage("build", group("outer", inner, `sharedPaths: ["/<+stage.identifier>", /one]`)), "execution:", "sharedPaths: [/one]\n      execution:", 1)).begin()
	assert.Equal(t, []any{"/one", "/build", "/two", "/three"}, w.opened[w.node("build").Path].SharedPaths)
	w = newWorld(t, stage("build", group("g", run("a")))).begin()
	assert.Nil(t, w.opened[w.node("build").Path].SharedPaths)
}

func TestAStageWithAFieldThatDoesNotResolveFails(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"delegateSelectors: ['<+pipeline.nme>']", "timeout: <+pipeline.name>", "delegateSelectors: ['<+secrets.getValue(\"x\")>']", "variables: [{name: v, type: String, value: <+stage.variables.v>}]",
		"variables: [{name: v, type: String}]", "variables: [{name: v, type: String, value: <+codebase.tag>}]"} {
		w := newWorld(t, stage("build", eachStep("a"), field))
		w.begin().play()
		assert.Equal(t, Failed, w.node("build").Status, field)
		assert.Equal(t, FailureConfiguration, w.node("build").FailureKind)
		assert.Contains(t, w.node("build").Reason, "p.yaml:")
		assert.Empty(t, w.commands)
	}
}

func TestAVariableOfAPipelineMayBeNullAndOneOfAStageMayBeEmpty(t *testing.T) {
	t.Parallel()
	p := pipeline(t, strings.Replace(scopePipeline, `default: dflt}`, `value: <+codebase.tag>}`+"\n    - {name: none, type: String}", 1))
	p.Stages[0].Stage.Variables[0].Value.Value = ""
	w := newWorldOf(t, p).begin()
	values := map[string]string{}
	for _, v := range w.opened["pipeline.stages.first"].Variables {
		values[v.Name] = v.Value
	}
	for _, name := range []string{"fallback", "none", "v"} {
		assert.Contains(t, values, name)
		assert.Empty(t, values[name])
	}
}

func TestStepsKnowWhetherTheirStageHasFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stage("first", run("a"))+stage("second", eachStep("b")+run("c")+run("d", "when: {stageStatus: All}"), "when: {pipelineStatus: All}"))
	w.results["a"] = []Result{exit(1)}
	w.results["c"] = []Result{exit(1)}
	w.begin().play()
	env := func(id string) map[string]string {
		return w.steps["pipeline.stages.second.spec.execution.steps."+id].Environment
	}
	// The second stage is skipped step by step unless its steps ask for the stage only.
	assert.Equal(t, map[string]string{"DRONE_STAGE_STATUS": "SUCCESS", "DRONE_BUILD_STATUS": "FAILURE", "CI_BUILD_STATUS": "FAILURE"}, env("b"))
	assert.Equal(t, map[string]string{
		"DRONE_STAGE_STATUS": "FAILURE", "DRONE_BUILD_STATUS": "FAILURE", "CI_BUILD_STATUS": "FAILURE", "DRONE_FAILED_STEPS": "c",
	}, env("d"))
}

func TestANodeKeepsABoundedRecord(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for range 3 * maxEvaluated {
		b.WriteString("<+pipeline.name>")
	}
	w := build(t, strings.Replace(run("a"), "echo", b.String(), 1))
	w.begin().play()
	assert.Len(t, w.step("a").Evaluated, maxEvaluated)

	w = build(t, run("a"))
	w.results["a"] = []Result{outputs("V", strings.Repeat("x", maxOutput+1))}
	w.begin().play()
	assert.Equal(t, Failed, w.step("a").Status)
	assert.Contains(t, w.step("a").Reason, "the output V has 131073 bytes")

	w = build(t, run("a"))
	w.results["a"] = []Result{{Failure: FailureUnknown, Message: strings.Repeat("é", maxText)}}
	w.begin().play()
	assert.LessOrEqual(t, len(w.step("a").Reason), maxText+3)
}

func TestExpressionsTakeTheCodebaseFromThePropertiesOfThePipeline(t *testing.T) {
	t.Parallel()
	p := pipeline(t, `pipeline:
  identifier: p
  name: p
  properties: {ci: {codebase: {connectorRef: git, repoName: web, build: {type: branch, spec: {branch: main}}}}}
  stages:
`+indent(stage("build", `
- step:
    identifier: show
    name: show
    type: Run
    spec:
      command: echo
      envVariables: {REPO: <+pipeline.properties.ci.codebase.repoName>, BRANCH: <+pipeline.properties.ci.codebase.build.spec.branch>, USER: <+pipeline.properties.ci.codebase.gitUser>}
`), 4))
	w := newWorldOf(t, p, func(r *Run) { r.Codebase = map[string]any{"gitUser": "ann"} }).begin().play()
	require.Equal(t, Status("SUCCEEDED"), w.node("pipeline").Status, w.statuses())
	require.Equal(t, map[string]any{"REPO": "web", "BRANCH": "main", "USER": "ann"}, w.steps["pipeline.stages.build.spec.execution.steps.show"].Spec["envVariables"])

	w = build(t, run("show", "timeout: <+pipeline.properties.ci.codebase.repoName>")).begin().play()
	require.Contains(t, w.step("show").Reason, "pipeline.properties.ci.codebase.repoName is unknown")
}

// A secret of the pipeline that a stage does not use must not be looked up for it.
func TestAStageHasOnlyTheSecretsOfThePipelineThatItNames(t *testing.T) {
	t.Parallel()
	p := pipeline(t, strings.Replace(scopePipeline, "command: echo}", `command: "curl -H $token x"}`, 1))
	w := newWorldOf(t, p)
	w.begin().play()
	names := func(stage string) (all []string) {
		for _, v := range w.opened["pipeline.stages."+stage].Variables {
			all = append(all, v.Name)
		}
		return all
	}
	assert.Equal(t, []string{"version", "count", "token", "which", "fallback", "v"}, names("first"))
	assert.Equal(t, []string{"version", "count", "which", "fallback", "v", "version"}, names("second"))
}
