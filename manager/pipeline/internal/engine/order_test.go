package engine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheEngineStartsStepsInTheirOrder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stages  string
		results map[string][]Result
		started []string
		status  Status
		nodes   string
	}{
		"a sequence": {stages: stage("build", eachStep("a", "b")), started: []string{"a", "b"}, status: Succeeded, nodes: "a=SUCCEEDED b=SUCCEEDED"},
		"a failure skips the rest": {
			stages: stage("build", eachStep("a", "b", "c")) + stage("test", eachStep("d")), results: map[string][]Result{"b": {exit(1)}},
			started: []string{"a", "b"}, status: Failed, nodes: "a=SUCCEEDED b=FAILED build=FAILED c=SKIPPED test=SKIPPED",
		},
		"parallel steps start together": {
			stages:  stage("build", "- parallel:\n"+indent(eachStep("a", "b"), 4)+eachStep("c")),
			started: []string{"a", "b", "c"}, status: Succeeded, nodes: "a=SUCCEEDED b=SUCCEEDED c=SUCCEEDED",
		},
		"a parallel failure lets the others end": {
			stages:  stage("build", "- parallel:\n"+indent(eachStep("a", "b"), 4)+eachStep("c")),
			results: map[string][]Result{"a": {exit(1)}},
			started: []string{"a", "b"}, status: Failed, nodes: "a=FAILED b=SUCCEEDED build=FAILED c=SKIPPED",
		},
		"parallel stages": {
			stages:  "- parallel:\n" + indent(stage("x", eachStep("a"))+stage("y", eachStep("b")), 4) + stage("z", eachStep("c")),
			started: []string{"a", "b", "c"}, status: Succeeded, nodes: "a=SUCCEEDED b=SUCCEEDED c=SUCCEEDED",
		},
		"nested groups": {
			stages:  stage("build", group("g", eachStep("a")+group("h", eachStep("b", "c")))+eachStep("d")),
			results: map[string][]Result{"b": {exit(1)}},
			started: []string{"a", "b"}, status: Failed, nodes: "a=SUCCEEDED b=FAILED build=FAILED c=SKIPPED d=SKIPPED g=FAILED h=FAILED",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.stages)
			w.results = test.results
			w.begin().play()
			assert.Equal(t, test.started, w.started)
			assert.Equal(t, test.status, w.node(rootPath).Status)
			nodes := w.statuses()
			if test.status != Succeeded {
				nodes = w.statusesOf()
			}
			assert.Equal(t, test.nodes, nodes)
		})
	}
}

// statusesOf is statuses without the pipeline.
func (w *world) statusesOf() string {
	row := w.rows[rootPath]
	delete(w.rows, rootPath)
	defer func() { w.rows[rootPath] = row }()
	return w.statuses()
}

// group writes a group of steps.
func group(id, steps string, more ...string) string {
	text := "- stepGroup:\n    identifier: " + id + "\n    name: " + id + "\n"
	for _, m := range indentAll(more, 4) {
		text += m
	}
	return text + "    steps:\n" + indent(steps, 6)
}

func TestAStageOfAGraphWaitsForTheStagesThatItDependsOn(t *testing.T) {
	t.Parallel()
	graph := dependent("a", "[]") + dependent("b", "[]") + dependent("c", "[a, b]") + dependent("d", "[c]")
	w := newWorld(t, graph)
	w.hold["step_b"] = true
	w.begin().drain()
	assert.Equal(t, []string{"step_a", "step_b"}, w.started)
	w.send("pipeline.stages.b.spec.execution.steps.step_b", 1, Result{})
	w.play()
	assert.Equal(t, []string{"step_a", "step_b", "step_c", "step_d"}, w.started)
	assert.Equal(t, Succeeded, w.node(rootPath).Status)

	w = newWorld(t, graph)
	w.results["step_a"] = []Result{exit(1)}
	w.begin().play()
	assert.Equal(t, []string{"step_a", "step_b"}, w.started)
	assert.Equal(t, Skipped, w.node("c").Status)
	assert.Equal(t, "depends on the stage a, which did not succeed", w.node("c").Reason)
	assert.Equal(t, []Value{{"a.status", "FAILED"}}, w.node("c").Values)
	assert.Equal(t, Skipped, w.node("d").Status, "a stage behind a blocked one does not run")
	assert.Equal(t, Failed, w.node(rootPath).Status)
}

func dependent(id, on string) string {
	return stage(id, eachStep("step_"+id), "dependsOn: "+on)
}

func TestNewRefusesDefinitionsThatCannotRun(t *testing.T) {
	t.Parallel()
	_, err := New(nil)
	require.Error(t, err)
	p := pipeline(t, "pipeline:\n  identifier: p\n  name: p\n  stages:\n"+indent(stage("a", eachStep("s")), 4))
	p.Graph = true
	p.Stages[0].Stage.DependsOn = []string{"a"}
	_, err = New(p)
	require.ErrorContains(t, err, "cycle")
	p.Stages[0].Stage.DependsOn = []string{"missing"}
	_, err = New(p)
	require.ErrorContains(t, err, `there is no stage "missing"`)
	p.Stages[0].Stage.DependsOn = nil
	m, err := New(p)
	require.NoError(t, err)
	_, _, err = m.Start(Run{ID: "r", StartedAt: start, Stages: []string{"b"}})
	require.ErrorContains(t, err, `selects the stage "b"`)
}

func TestTheEngineIgnoresEventsThatAreLateOrRepeated(t *testing.T) {
	t.Parallel()
	w := build(t, eachStep("a", "b"))
	w.begin()
	const stage, a = "pipeline.stages.build", "pipeline.stages.build.spec.execution.steps.a"
	w.hold["a"] = true
	w.drain()
	unchanged := func(e Event) {
		t.Helper()
		e.Time = w.now
		changed, commands, err := w.m.Apply(w.state(), e)
		require.NoError(t, err)
		assert.Empty(t, changed)
		assert.Empty(t, commands)
	}
	unchanged(Event{Kind: StageOpened, Node: stage, Attempt: 1})
	unchanged(Event{Kind: StepEnded, Node: a, Attempt: 2, Result: &Result{}})
	unchanged(Event{Kind: StepEnded, Node: a, Attempt: 0, Result: &Result{}})
	unchanged(Event{Kind: StepEnded, Node: stage, Attempt: 1, Result: &Result{}})
	unchanged(Event{Kind: StepEnded, Node: "pipeline.stages.other", Attempt: 1, Result: &Result{}})
	unchanged(Event{Kind: TimerFired, Node: a, Attempt: 1, Timer: RetryTimer})
	w.send(a, 1, Result{})
	w.play()
	unchanged(Event{Kind: StepEnded, Node: a, Attempt: 1, Result: &Result{Failure: FailureExitCode}})
	unchanged(Event{Kind: StageEnded, Node: stage, Attempt: 1, Result: &Result{Failure: FailureDelegateLost}})
	unchanged(Event{Kind: Abort})
	_, _, err := w.m.Apply(w.state(), Event{Kind: "unknown", Node: stage, Time: w.now})
	require.NoError(t, err, "the node has ended")
}

func TestTheEngineRunsThePipelinesOfTheReader(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../definition/testdata/pipelines/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	templates, err := definition.Folder(os.DirFS("../definition/testdata/templates"))
	require.NoError(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		p, problems := definition.Read(definition.Source{Name: file, Text: data}, definition.Options{Templates: templates, Partial: true})
		require.False(t, problems.Errors(), "%v", problems)
		w := newWorldOf(t, p, func(r *Run) { r.Codebase = Values{"branch": "main", "build": map[string]any{"type": "branch"}} })
		w.results["version"] = []Result{outputs("VERSION", "1")}
		w.begin().play()
		assert.Equal(t, Succeeded, w.node(rootPath).Status, "%s: %s", file, w.node(rootPath).Reason)
	}
}

func TestOneMachineServesRunsAtTheSameTime(t *testing.T) {
	t.Parallel()
	p := pipeline(t, "pipeline:\n  identifier: p\n  name: p\n  stages:\n"+indent(stage("build", run("a", "strategy: {matrix: {v: [1, 2, 3]}}")+eachStep("b")), 4))
	m, err := New(p)
	require.NoError(t, err)
	for range 4 {
		t.Run("a run", func(t *testing.T) {
			t.Parallel()
			w := newWorldOf(t, p)
			w.m = m
			w.begin().play()
			assert.Equal(t, []string{"a_0", "a_1", "a_2", "b"}, w.started)
		})
	}
}
