package definition

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestParseInputReadsItsModifiers(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		text string
		want Input
	}{
		"alone":                  {`<+input>`, Input{}},
		"in blanks":              {" <+input>\n", Input{}},
		"default":                {`<+input>.default(main)`, Input{Default: text("main")}},
		"default with a comma":   {`<+input>.default('a,b')`, Input{Default: text("a,b")}},
		"escaped quotes":         {`<+input>.default(\'a,b\')`, Input{Default: text("a,b")}},
		"default in parentheses": {`<+input>.default(f(x))`, Input{Default: text("f(x)")}},
		"allowed":                {`<+input>.allowedValues(a, b,'c,d')`, Input{Allowed: []string{"a", "b", "c,d"}}},
		"default and allowed":    {`<+input>.default(b).allowedValues(a,b)`, Input{Default: text("b"), Allowed: []string{"a", "b"}}},
		"select one":             {`<+input>.selectOneFrom(a,b)`, Input{Allowed: []string{"a", "b"}}},
		"select many":            {`<+input>.selectManyFrom(a,b).default(a,b)`, Input{Allowed: []string{"a", "b"}, Many: true, Default: text("a,b")}},
		"regex with groups":      {`<+input>.regex(^(v|r)\d+(\.\d+)?$).default(v1)`, Input{Pattern: `^(v|r)\d+(\.\d+)?$`, Default: text("v1")}},
		"while the run waits":    {`<+input>.executionInput().default(x)`, Input{Execution: true, Default: text("x")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, found, err := ParseInput(c.text)
			require.NoError(t, err)
			require.True(t, found)
			in.pattern = nil
			require.Equal(t, c.want, in)
		})
	}
}

func TestParseInputNamesTheMistakeInAModifier(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`<+input>.defaults(a)`:                       "did you mean default?",
		`<+input> > 3`:                               `after <+input> there is`,
		`<+input>.default(a`:                         "no closing parenthesis",
		`<+input>.default()`:                         "default needs a value",
		`<+input>.default(*a)`:                       "begins with *",
		`<+input>.default(c).allowedValues(a,b)`:     `the default "c" is not permitted`,
		`<+input>.default(x).regex(\d+)`:             "does not match",
		`<+input>.regex((?=a)b)`:                     "look-arounds",
		`<+input>.default(a).default(b)`:             "default stands twice",
		`<+input>.allowedValues(a).selectOneFrom(a)`: "another list",
		`<+input>.executionInput(5)`:                 "takes no value",
	} {
		_, found, err := ParseInput(text)
		require.True(t, found, text)
		require.ErrorContains(t, err, want, text)
	}
	_, found, err := ParseInput("<+pipeline.name>")
	require.False(t, found)
	require.NoError(t, err)
}

const inputs = `pipeline:
  identifier: inputs
  name: inputs
  properties: {ci: {codebase: {connectorRef: git, build: <+input>}}}
  variables:
    - {name: tag, type: String, value: <+input>}
    - {name: level, type: Number, value: "<+input>.default(2).allowedValues(1,2,3)"}
    - {name: color, type: String, default: blue, value: <+input>}
  stages:
    - parallel:
      - stage:
          identifier: build
          name: build
          type: CI
          spec:
            execution:
              steps:
                - parallel:
                  - step:
                      identifier: compile
                      name: compile
                      type: Run
                      timeout: <+input>.default(10m)
                      spec: {command: make, envVariables: {MODE: <+input>}}
                - step:
                    identifier: ask
                    name: ask
                    type: Run
                    spec: {command: <+input>.executionInput()}
`

func source(text string) Source { return Source{Name: "p.yaml", Text: []byte(text)} }

func TestReadListsAllInputsWithoutAValueByTheirPaths(t *testing.T) {
	t.Parallel()
	p, problems := Read(source(inputs), Options{})
	require.Nil(t, p)
	var found []string
	for _, problem := range problems {
		require.Equal(t, "missing-input", problem.Code, problem)
		found = append(found, problem.Text)
	}
	require.Equal(t, []string{
		"the input pipeline.properties.ci.codebase.build has no value",
		"the input pipeline.variables.tag has no value",
		"the input pipeline.stages.build.spec.execution.steps.compile.spec.envVariables.MODE has no value",
	}, found)
	p, problems = Read(source(inputs), Options{Partial: true})
	require.Empty(t, problems)
	require.Equal(t, "<+input>", p.Variables[0].Value.Value)
}

func TestReadTakesInputsByTheirPaths(t *testing.T) {
	t.Parallel()
	p, problems := Read(source(inputs), Options{Inputs: map[string]string{
		"pipeline.properties.ci.codebase.build": "tag:v1.2", "tag": "1.10", "pipeline.variables.level": "3", "MODE": "true",
	}})
	require.Empty(t, problems)
	require.Equal(t, map[string]any{"type": "tag", "spec": map[string]any{"tag": "v1.2"}}, p.Codebase.Build.Plain())
	require.Equal(t, "1.10", p.Variables[0].Value.Value)
	require.Equal(t, int64(3), p.Variables[1].Value.Value)
	require.Equal(t, "blue", p.Variables[2].Value.Value)
	steps := p.Stages[0].Parallel[0].Steps
	require.Equal(t, "10m", steps[0].Parallel[0].Step.Timeout.Value)
	require.Equal(t, true, steps[0].Parallel[0].Step.Spec.Get("envVariables").Get("MODE").Value)
	require.Equal(t, "<+input>.executionInput()", steps[1].Step.Spec.Get("command").Value)
}

func TestReadRefusesInputsThatThePipelineDoesNotPermit(t *testing.T) {
	t.Parallel()
	for path, c := range map[string]struct{ value, want string }{
		"level":                  {"7", `"7" is not permitted`},
		"pipeline.stage":         {"x", "the pipeline has no input"},
		"pipeline.variables.tga": {"x", "did you mean pipeline.variables.tag?"},
		"build":                  {"branchh:main", "is not a build"},
	} {
		_, problems := Read(source(inputs), Options{Partial: true, Inputs: map[string]string{path: c.value}})
		require.ErrorContains(t, problems, c.want, path)
	}
}

const setOne = `inputSet:
  identifier: one
  name: one
  pipeline:
    identifier: inputs
    properties: {ci: {codebase: {build: {type: branch, spec: {branch: main}}}}}
    variables:
      - {name: tag, type: String, value: one}
      - {name: level, type: Number, value: 1}
    stages:
      - stage:
          identifier: build
          type: CI
          spec:
            execution:
              steps:
                - step: {identifier: compile, type: Run, spec: {envVariables: {MODE: fast}}}
`

func TestReadMergesInputSetsByIdentifiersAndTheLastWins(t *testing.T) {
	t.Parallel()
	two := "inputSet:\n  pipeline:\n    variables:\n      - {name: tag, value: two}\n      - {name: extra, value: 5}\n"
	p, problems := Read(source(inputs), Options{InputSets: []Source{{"one.yaml", []byte(setOne)}, {"two.yaml", []byte(two)}}})
	require.Len(t, problems, 1)
	require.Equal(t, "two.yaml:5:30: warning: pipeline.variables.extra is not an input of the pipeline: the value is ignored: "+
		"write <+input> in the pipeline, or remove the value [unused-input]", problems[0].Error())
	require.Equal(t, "two", p.Variables[0].Value.Value)
	require.Equal(t, int64(1), p.Variables[1].Value.Value)
	require.Equal(t, "main", p.Codebase.Build.Get("spec").Get("branch").Text())
	require.Equal(t, "one.yaml", p.Codebase.Build.File)
}

func TestInputsListsTheFormOfAPipeline(t *testing.T) {
	t.Parallel()
	list, problems := Inputs(source(inputs), Options{InputSets: []Source{{"one.yaml", []byte(setOne)}}})
	require.Empty(t, problems)
	require.Len(t, list, 7)
	require.Equal(t, "build", list[0].Type)
	require.True(t, list[1].Given)
	require.Equal(t, []string{"1", "2", "3"}, list[2].Allowed)
	require.Equal(t, "blue", *list[3].Default)
	require.True(t, list[6].Execution)
}

func TestReadRefusesAnExecutionInputThatDecidesTheStructure(t *testing.T) {
	t.Parallel()
	text := "pipeline:\n  identifier: x\n  stages:\n    - stage:\n        identifier: s\n        type: CI\n        spec:\n          execution:\n            steps: <+input>.executionInput()\n"
	_, problems := Read(source(text), Options{})
	require.ErrorContains(t, problems, "steps must be known before the run")
	text = strings.ReplaceAll(inputs, "value: <+input>}\n  stages", "value: <+input>.executionInput()}\n  stages")
	_, problems = Read(source(text), Options{Partial: true})
	require.ErrorContains(t, problems, "a run does not wait for a value of pipeline.variables.color")
}

func TestTheResolvedDocumentReadsToTheSamePipeline(t *testing.T) {
	t.Parallel()
	first, problems := Read(source(inputs), Options{InputSets: []Source{{"one.yaml", []byte(setOne)}}})
	require.Empty(t, problems)
	text, err := first.YAML()
	require.NoError(t, err)
	second, problems := Read(Source{Text: text}, Options{})
	require.Empty(t, problems)
	require.Equal(t, first.Document.Plain(), second.Document.Plain())
}

func templates(files map[string]string) func(string, string) (Source, bool) {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	find, err := Folder(m)
	if err != nil {
		panic(err)
	}
	return find
}

func TestReadReplacesTemplatesOfAllKinds(t *testing.T) {
	t.Parallel()
	find := templates(map[string]string{
		"step.yaml": "template:\n  identifier: build\n  versionLabel: v1\n  type: Step\n  spec:\n    type: Run\n    timeout: 5m\n" +
			"    spec: {command: <+input>, image: <+input>.default(alpine), envVariables: {A: <+input>}}\n",
		"sub/group.yml": "template:\n  identifier: group\n  versionLabel: v1\n  type: StepGroup\n  spec:\n    steps:\n" +
			"      - step: {identifier: inner, name: inner, template: {templateRef: account.build, versionLabel: v1, templateInputs: {type: Run, spec: {command: make, envVariables: {A: <+input>}}}}}\n",
		"stage.yaml": "template:\n  identifier: ci\n  versionLabel: v1\n  type: Stage\n  spec:\n    type: CI\n    spec:\n      execution:\n        steps:\n" +
			"          - stepGroup: {identifier: g, name: g, template: {templateRef: org.group, versionLabel: v1}}\n",
		"pipeline.yaml": "template:\n  identifier: whole\n  versionLabel: v1\n  type: Pipeline\n  spec:\n    stages:\n" +
			"      - stage: {identifier: s, name: s, template: {templateRef: ci}, when: {pipelineStatus: All}}\n",
		"unrelated.yaml": "pipeline: {}",
	})
	text := "pipeline:\n  identifier: p\n  name: p\n  template: {templateRef: whole, versionLabel: v1}\n"
	p, problems := Read(source(text), Options{Templates: find, Inputs: map[string]string{
		"pipeline.stages.s.spec.execution.steps.g.steps.inner.spec.envVariables.A": "a"}})
	require.Empty(t, problems)
	stage := p.Stages[0].Stage
	require.Equal(t, "All", stage.When.Status)
	step := stage.Steps[0].Group.Steps[0].Step
	require.Equal(t, "inner", step.Identifier)
	require.Equal(t, map[string]any{"command": "make", "image": "alpine", "envVariables": map[string]any{"A": "a"}}, step.Spec.Plain())
	require.Equal(t, "step.yaml", step.Spec.File)
}

func TestReadNamesTheTemplateThatItCannotUse(t *testing.T) {
	t.Parallel()
	use := func(ref string) Source {
		return source("pipeline:\n  identifier: p\n  name: p\n  template: {templateRef: " + ref + "}\n")
	}
	find := templates(map[string]string{
		"loop.yaml":  "template: {identifier: loop, type: Pipeline, spec: {template: {templateRef: loop}}}",
		"step.yaml":  "template: {identifier: step, type: Step, spec: {type: Run}}",
		"empty.yaml": "template: {identifier: empty, type: Pipeline}",
		"bushy.yaml": "template: {identifier: bushy, type: Pipeline, spec: {stages: [{stage: {identifier: s, type: CI, spec: {execution: {steps: [{stepGroup: {template: {templateRef: twice}}}]}}}}]}}",
		"twice.yaml": "template: {identifier: twice, type: StepGroup, spec: {steps: [" + several(20, "{stepGroup: {identifier: g, template: {templateRef: twice}}}") + "]}}",
	})
	for ref, want := range map[string]string{
		"none": `there is no template "none"`, "loop": "nested more than 10 levels", "step": "is for a Step and stands in a Pipeline",
		"empty": "has no spec", "bushy": "nested more than 10 levels",
	} {
		_, problems := Read(use(ref), Options{Templates: find})
		require.ErrorContains(t, problems, want)
	}
	_, problems := Read(use("none"), Options{})
	require.ErrorContains(t, problems, "there is no template")
}

func several(n int, item string) string {
	text := item
	for range n - 1 {
		text += ", " + item
	}
	return text
}
