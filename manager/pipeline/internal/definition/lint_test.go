package definition

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lintFile has places for one test each.
const lintFile = `pipeline:
  identifier: p
  name: p
  properties: {ci: {codebase: {connectorRef: git, build: <+input>}}}
  variables:
    - {name: tag, type: String, value: v1}
    - {name: key, type: Secret, value: id}
  stages:
    - stage:
        identifier: build
        name: NAME
        type: CI
        when: {pipelineStatus: Success, condition: "STAGECONDITION"}
        strategy: {matrix: {go: [a, b], os-name: [c]}}
        spec:
          execution:
            steps:
              - step: {identifier: first, name: first, type: Run, spec: {command: "export V=1", outputVariables: [{name: V}, {name: USED}]}}
              - stepGroup:
                  identifier: group
                  name: group
                  steps:
                    - step: {identifier: inner, name: inner, type: Run, spec: {command: "echo <+execution.steps.first.output.outputVariables.V> $USED"}}
              - step:
                  identifier: second
                  name: second
                  type: Run
                  when: {stageStatus: All, condition: 'CONDITION'}
                  strategy: {matrix: {axis: [AXIS], nodeName: "NODE <+matrix.axis>"}}
                  spec:
                    image: alpine
                    envVariables: {A: "ENVIRONMENT"}
                    command: |
                      true
                      SCRIPT
              - step: {identifier: third, name: third, type: Run, spec: {command: "true"}}
    - stage:
        identifier: deploy
        name: deploy
        type: CI
        spec: {execution: {steps: [{step: {identifier: last, name: last, type: Run, spec: {command: "LAST"}}}]}}
`

func lint(t *testing.T, place, text string) Problems {
	t.Helper()
	values := map[string]string{"NAME": "build", "STAGECONDITION": "true", "CONDITION": "true", "AXIS": "x", "ENVIRONMENT": "1", "SCRIPT": "true", "LAST": "true", "NODE": "a"}
	values[place] = text
	document := lintFile
	for _, name := range []string{"STAGECONDITION", "CONDITION", "NAME", "AXIS", "ENVIRONMENT", "SCRIPT", "LAST", "NODE"} {
		document = strings.ReplaceAll(document, name, values[name])
	}
	s := Source{Name: "p.yaml", Text: []byte(document)}
	p, problems := Read(s, Options{Partial: true})
	require.False(t, problems.Errors(), problems)
	require.Empty(t, problems)
	return Lint(p, s)
}

func TestLintFindsNothingInACarefulPipeline(t *testing.T) {
	t.Parallel()
	require.Empty(t, lint(t, "", ""))
	for place, text := range map[string]string{
		"CONDITION":      `<+codebase.branch> == "main" || <+execution.steps.first.status> == "FAILED"`,
		"SCRIPT":         `echo <+pipeline.variables.tag> <+matrix.go> <+matrix.axis> <+matrix.get("os-name")> <+execution.steps.group.steps.inner.status>`,
		"ENVIRONMENT":    `<+codebase.commitMessage> <+secrets.getValue('x')> <+variables.key>`,
		"LAST":           `<+pipeline.stages.build.spec.execution.steps.group.steps.inner.status> <+pipeline.stages.build_0_0.spec.execution.steps.second_1.status> <+steps.gone.status ?? 'no'> <+build.variables.x> <+last.status> <+gone ?? 'no'> <+build_0_0.status> <+infra.name ?? 'none'>`,
		"STAGECONDITION": `<+pipeline.variables.tag> =^ 'v'`,
	} {
		require.Empty(t, lint(t, place, text), place)
	}
}

func TestLintWarnsOfEachUsualMistake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ place, text, want string }{
		"expression in a comment":     {"SCRIPT", `# <+pipeline.variables.tag>`, "comment-expression"},
		"untrusted value":             {"SCRIPT", `echo "<+codebase.commitMessage>"`, "untrusted-in-script"},
		"untrusted payload":           {"SCRIPT", `echo <+trigger.payload.pull_request.title>`, "untrusted-in-script"},
		"constant operand":            {"CONDITION", `<+codebase.build.type> == "tag" || "branch"`, "constant-operand"},
		"literal pattern":             {"CONDITION", `<+trigger.payload.ref> == "refs/tags/v*"`, "literal-pattern"},
		"unknown status":              {"CONDITION", `<+execution.steps.first.status> == "Success"`, "unknown-status"},
		"order of texts":              {"CONDITION", `<+pipeline.variables.tag> > 9`, "ordered-text"},
		"joined values":               {"CONDITION", `<+pipeline.variables.tag>-<+matrix.go>`, "concatenation"},
		"secret in a script":          {"SCRIPT", `curl -u <+secrets.getValue("x")>`, "secret-in-script"},
		"secret variable in a script": {"SCRIPT", `curl -u <+pipeline.variables.key>`, "secret-in-script"},
		"secret in a condition":       {"CONDITION", `<+secrets.getValue("x")> == "y"`, "secret-in-condition"},
		"secret variable decides":     {"STAGECONDITION", `<+pipeline.variables.key> == 'y'`, "secret-in-condition"},
		"axis of a repetition":        {"LAST", `<+repeat.item> <+matrix.a ?? 'b'> <+steps.gone.status>`, "unknown-step"},
		"secret in an axis":           {"AXIS", `<+secrets.getValue("x")>`, "secret-in-axis"},
		"secret in a name":            {"NODE", `<+secrets.getValue('x')>`, "secret-in-name"},
		"hyphen":                      {"SCRIPT", `echo <+matrix.os-name>`, "hyphen"},
		"stage decides by its step":   {"STAGECONDITION", `<+execution.steps.first.status> == 'FAILED'`, "own-steps"},
		"step of another stage":       {"LAST", `<+steps.first.status>`, "write pipeline.stages.build.spec.execution.steps.first"},
		"unknown step":                {"SCRIPT", `<+execution.steps.frist.status>`, "did you mean first?"},
		"unknown stage":               {"SCRIPT", `<+pipeline.stages.biuld.status>`, "did you mean build?"},
		"output of a stage":           {"SCRIPT", `<+stage.output.V>`, "unknown-output"},
		"output of another stage":     {"LAST", `<+pipeline.stages.build.output.V>`, "unknown-output"},
		"unknown output":              {"SCRIPT", `<+steps.first.output.outputVariables.W>`, "unknown-output"},
		"later step":                  {"SCRIPT", `<+steps.third.status>`, "later-step"},
		"unknown variable":            {"SCRIPT", `<+pipeline.variables.tga>`, "did you mean tag?"},
		"unknown axis":                {"SCRIPT", `<+matrix.gp>`, "did you mean go?"},
		"unknown name":                {"LAST", `<+Release.variables.TAG>`, "nothing has the name \"Release\" here"},
		"misspelt name":               {"SCRIPT", `<+pipelnie.name>`, "did you mean pipeline?"},
		"step of another stage alone": {"LAST", `<+first.status>`, "unknown-name"},
		"axis outside of a matrix":    {"LAST", `<+matrix.go>`, "stands outside of a matrix"},
		"unfinished expression":       {"SCRIPT", `<+pipeline.name`, "unfinished-expression"},
		"bad expression":              {"SCRIPT", `<+pipeline.name ==>`, "bad-expression"},
		"bad condition":               {"CONDITION", `<+pipeline.name> ==`, "bad-expression"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems := lint(t, c.place, c.text)
			require.Len(t, problems, 1, problems)
			require.ErrorContains(t, problems, c.want)
			wantError := strings.HasPrefix(c.want, "secret-in-") && c.want != "secret-in-script" || c.want == "bad-expression"
			require.Equal(t, wantError, problems.Errors())
		})
	}
}

func TestLintNamesOutputsThatNoStepUses(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(strings.ReplaceAll(lintFile, "$USED", ""), "STAGECONDITION", "true")
	text = strings.ReplaceAll(text, "CONDITION", "true")
	p, problems := Read(source(text), Options{Partial: true})
	require.Empty(t, problems)
	found := Lint(p)
	require.Len(t, found, 1, found)
	require.Equal(t, `the output "USED" of the step "first" is not used`, found[0].Text)
}

func TestLintPointsAtTheExpressionWithinABlock(t *testing.T) {
	t.Parallel()
	problems := lint(t, "SCRIPT", `echo "äö" <+codebase.branch> <+codebase.branch>`)
	require.Len(t, problems, 2)
	require.Equal(t, Position{File: "p.yaml", Line: 35, Column: 35}, problems[0].Position)
	require.Equal(t, 54, problems[1].Column)
	require.Equal(t, "pipeline.stages[0].stage.spec.execution.steps[2].step.spec.command", problems[0].Path)
}

func TestLintWarnsOfALineEndInAShortValue(t *testing.T) {
	t.Parallel()
	text := "pipeline:\n  identifier: p\n  name: p\n  stages:\n    - stage:\n        identifier: s\n        name: s\n        type: CI\n        spec:\n" +
		"          execution:\n            steps:\n              - step:\n                  identifier: a\n                  name: a\n                  type: Run\n" +
		"                  spec:\n                    command: |\n                      true\n                    image: |\n                      alpine\n"
	p, problems := Read(source(text), Options{})
	require.Empty(t, problems)
	require.ErrorContains(t, Lint(p), "trailing-newline")
}
