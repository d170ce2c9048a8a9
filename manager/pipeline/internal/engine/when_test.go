package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAStepRunsOrIsSkippedByItsWhen(t *testing.T) {
	t.Parallel()
	branch := func(r *Run) {
		r.Codebase = Values{"branch": "main"}
		r.Variables = Values{"empty": "", "no": "FALSE", "text": "0"}
	}
	for name, test := range map[string]struct {
		when   string
		fails  bool // whether the step before fails
		status Status
		reason string
		values []Value
	}{
		"no condition":             {when: "{stageStatus: Success}", status: Succeeded},
		"success after a failure":  {when: "{stageStatus: Success}", fails: true, status: Skipped, reason: "runs only on success of the stage", values: []Value{{"<+stage.currentStatus>", "FAILED"}}},
		"failure after a failure":  {when: "{stageStatus: Failure}", fails: true, status: Succeeded},
		"failure after a success":  {when: "{stageStatus: Failure}", status: Skipped, reason: "runs only on failure of the stage", values: []Value{{"<+stage.currentStatus>", "SUCCEEDED"}}},
		"all after a failure":      {when: "{stageStatus: All}", fails: true, status: Succeeded},
		"status and condition":     {when: `{stageStatus: Failure, condition: "true"}`, status: Skipped, reason: "runs only on failure of the stage", values: []Value{{"<+stage.currentStatus>", "SUCCEEDED"}}},
		"a true condition":         {when: `{stageStatus: Success, condition: '<+codebase.branch> == "main"'}`, status: Succeeded},
		"a false condition":        {when: `{stageStatus: Success, condition: '<+codebase.branch> == "dev"'}`, status: Skipped, reason: `the condition is false: <+codebase.branch> == "dev"`, values: []Value{{"<+codebase.branch>", "main"}}},
		"an empty condition":       {when: `{stageStatus: Success, condition: " "}`, status: Succeeded},
		"a condition of null":      {when: `{stageStatus: Success, condition: null}`, status: Succeeded},
		"a literal":                {when: `{stageStatus: Success, condition: "false"}`, status: Skipped, reason: "the condition is false: false"},
		"a boolean":                {when: `{stageStatus: Success, condition: false}`, status: Skipped, reason: "the condition is false: false"},
		"a block with a line end":  {when: "\n  stageStatus: Success\n  condition: |\n    <+codebase.branch> == \"main\"\n", status: Succeeded},
		"the empty text":           {when: `{stageStatus: Success, condition: <+variable.empty>}`, status: Skipped, reason: "the condition is false: <+variable.empty>", values: []Value{{"<+variable.empty>", ""}}},
		"the text FALSE":           {when: `{stageStatus: Success, condition: <+variable.no>}`, status: Skipped, reason: "the condition is false: <+variable.no>", values: []Value{{"<+variable.no>", "FALSE"}}},
		"any other text":           {when: `{stageStatus: Success, condition: <+variable.text>}`, status: Succeeded},
		"null":                     {when: `{stageStatus: Success, condition: <+trigger.event>}`, status: Failed, values: []Value{{"<+trigger.event>", "null"}}},
		"null compared":            {when: `{stageStatus: Success, condition: '<+trigger.event> != "PR"'}`, status: Succeeded},
		"an unknown name":          {when: `{stageStatus: Success, condition: '<+pipeline.nme> == "p"'}`, status: Failed},
		"a secret":                 {when: `{stageStatus: Success, condition: '<+secrets.getValue("x")> == "p"'}`, status: Failed},
		"a status word":            {when: `{stageStatus: All, condition: <+OnStageFailure>}`, fails: true, status: Succeeded},
		"the status of a step":     {when: `{stageStatus: All, condition: '<+execution.steps.a.status> == "FAILED"'}`, fails: true, status: Succeeded},
		"the step by steps":        {when: `{stageStatus: All, condition: '<+steps.a.exitCode> == 3'}`, fails: true, status: Succeeded},
		"the status of a pipeline": {when: `{stageStatus: All, condition: '<+pipeline.status> == "RUNNING"'}`, status: Succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := build(t, run("a")+run("b", "when: "+test.when), branch)
			if test.fails {
				w.results["a"] = []Result{exit(3)}
			}
			w.begin().play()
			b := w.step("b")
			assert.Equal(t, test.status, b.Status, b.Reason)
			if test.status == Failed {
				assert.Contains(t, b.Reason, "error in evaluating the when condition: p.yaml:")
				assert.Equal(t, FailureConfiguration, b.FailureKind)
				assert.Equal(t, Failed, w.node(rootPath).Status)
			} else {
				assert.Equal(t, test.reason, b.Reason)
			}
			if test.values != nil {
				assert.Equal(t, test.values, b.Values)
			}
		})
	}
}

func TestAStageRunsOrIsSkippedByItsWhen(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		when    string
		fails   bool
		started bool
	}{
		"the default after a success":   {started: true},
		"the default after a failure":   {fails: true},
		"failure after a failure":       {when: "when: {pipelineStatus: Failure}", fails: true, started: true},
		"failure after a success":       {when: "when: {pipelineStatus: Failure}"},
		"all after a failure":           {when: "when: {pipelineStatus: All}", fails: true, started: true},
		"a false condition":             {when: `when: {pipelineStatus: All, condition: "false"}`},
		"the output of another stage":   {when: `when: {pipelineStatus: Success, condition: '<+pipeline.stages.first.spec.execution.steps.a.output.outputVariables.go> == "yes"'}`, started: true},
		"the bare name of a stage":      {when: `when: {pipelineStatus: Success, condition: '<+first.variables.v> == "1"'}`, started: true},
		"the status of another stage":   {when: `when: {pipelineStatus: All, condition: '<+stages.first.status> == "SUCCEEDED"'}`, started: true},
		"a variable of the same stage":  {when: `when: {pipelineStatus: Success, condition: '<+stage.variables.own> == "2"'}`, started: true},
		"an output of an earlier stage": {when: `when: {pipelineStatus: Success, condition: '<+stages.first.spec.execution.steps.a.output.outputVariables.go> == "no"'}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, stage("first", run("a"), "variables: [{name: v, type: Number, value: 1}]")+
				stage("second", run("b"), "variables: [{name: own, type: String, value: '<+<+first.variables.v> + 1>'}]", test.when))
			w.results["a"] = []Result{outputs("go", "yes\n")}
			if test.fails {
				w.results["a"] = []Result{exit(1)}
			}
			w.begin().play()
			if name == "a variable of the same stage" {
				// A variable is text: "1" + 1 is "11".
				assert.Equal(t, Skipped, w.node("second").Status, w.node("second").Reason)
				return
			}
			assert.Equal(t, test.started, w.node("second.spec.execution.steps.b").Status == Succeeded, w.node("second").Reason)
			if !test.started {
				assert.Equal(t, Skipped, w.node("second").Status)
			}
			if !test.fails {
				assert.Equal(t, Succeeded, w.node(rootPath).Status, "a skipped stage counts as a success")
			}
		})
	}
}

func TestARunLeavesOutStagesThatWereNotSelected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stage("x", eachStep("a"))+stage("y", eachStep("b")), func(r *Run) { r.Stages = []string{"y"} })
	w.begin().play()
	assert.Equal(t, []string{"b"}, w.started)
	assert.Equal(t, "the run was started without this stage", w.node("x").Reason)
	assert.Equal(t, Succeeded, w.node(rootPath).Status)
}

func TestEveryValueOfATriggerIsNullInARunWithoutOne(t *testing.T) {
	t.Parallel()
	step := func(condition string) string {
		return run("a", "when: {stageStatus: Success, condition: '"+condition+"'}")
	}
	for condition, want := range map[string]string{
		`<+trigger.anything> == "x"`: "a=SKIPPED",
		`<+pipeline.triggeredBy.name> == "" && <+pipeline.triggeredBy.email> == null`: "a=SUCCEEDED",
		`<+trigger.any.thing[0].at.all> == null`:                                      "a=SUCCEEDED",
		`<+trigger.any> != null && <+trigger.any>.contains("load")`:                   "a=SKIPPED",
		`<+trigger.branch> == "main" || <+trigger.payload.ref> =^ "refs/"`:            "a=SKIPPED",
	} {
		w := build(t, step(condition)).begin().play()
		assert.Contains(t, w.statuses(), want, condition)
	}
	w := build(t, step(`<+trigger.anything> == "x"`), func(r *Run) { r.Trigger = Values{"event": "PR"} }).begin().play()
	assert.Contains(t, w.step("a").Reason, "trigger.anything is unknown")
}
