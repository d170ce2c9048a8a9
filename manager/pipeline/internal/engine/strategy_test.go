package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAStrategyMakesItsChildren(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		strategy string
		children string // postfix:matrix or item
		fails    string
	}{
		"a matrix":                {strategy: "{matrix: {os: [linux, mac], v: [1, 2]}}", children: "_0_0:linux,1 _0_1:linux,2 _1_0:mac,1 _1_1:mac,2"},
		"an exclusion":            {strategy: "{matrix: {os: [linux, mac], v: [1, 2], exclude: [{os: mac, v: 1}]}}", children: "_0_0:linux,1 _0_1:linux,2 _1_1:mac,2"},
		"an exclusion of an axis": {strategy: "{matrix: {os: [linux, mac], v: [1, 2], exclude: [{os: mac}]}}", children: "_0_0:linux,1 _0_1:linux,2"},
		"an unknown key":          {strategy: "{matrix: {os: [linux], exclude: [{os: linux, arch: arm}]}}", children: "_0:linux"},
		"all excluded":            {strategy: "{matrix: {os: [linux], exclude: [{os: linux}]}}", fails: "total number of iterations found to be 0"},
		"an empty axis":           {strategy: "{matrix: {os: <+pipeline.variables.none>}}", fails: "strategy.matrix.os"},
		"an axis by expression":   {strategy: `{matrix: {os: "<+pipeline.variables.list>.split(',')"}}`, children: "_0:a _1:b"},
		"an axis of JSON":         {strategy: "{matrix: {os: <+pipeline.variables.json>}}", children: "_0:x _1:2"},
		"a value by expression":   {strategy: "{matrix: {os: [<+pipeline.name>, b]}}", children: "_0:p _1:b"},
		"maps":                    {strategy: "{matrix: {s: [{name: api, port: 1}]}}", children: `_0:{"name":"api","port":1}`},
		"a node name":             {strategy: `{matrix: {os: [linux, "mac os"], nodeName: "<+matrix.os>"}}`, children: "_linux:linux _mac_os:mac os"},
		"equal node names":        {strategy: "{matrix: {os: [a, b], nodeName: same}}", children: "_same_0:a _same_1:b"},
		"parallelism":             {strategy: "{parallelism: 3}", children: "_0: _1: _2:"},
		"parallelism of a text":   {strategy: "{parallelism: <+pipeline.variables.two>}", children: "_0: _1:"},
		"parallelism of nothing":  {strategy: "{parallelism: <+pipeline.variables.list>}", fails: "is not a whole number"},
		"repeat":                  {strategy: "{repeat: {times: 2}}", children: "_0:0 _1:1"},
		"items":                   {strategy: "{repeat: {items: [x, y]}}", children: "_0:x _1:y"},
		"a section":               {strategy: "{repeat: {items: [v, w, x, y, z], start: 1, end: 3}}", children: "_0:w _1:x"},
		"a section in percent":    {strategy: "{repeat: {items: [v, w, x, y, z], start: 0, end: 50, unit: Percentage}}", children: "_0:v _1:w _2:x"},
		"its other half":          {strategy: "{repeat: {items: [v, w, x, y, z], start: 50, end: 100, unit: Percentage}}", children: "_0:y _1:z"},
		"partitions":              {strategy: "{repeat: {items: [v, w, x], partitionSize: 2}}", children: `_0:["v","w"] _1:["x"]`},
		"a false condition":       {strategy: `{parallelism: 2, when: '<+pipeline.name> == "x"'}`},
		"a secret axis":           {strategy: `{matrix: {os: ['<+secrets.getValue("x")>']}}`, fails: "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := "pipeline:\n  identifier: p\n  name: p\n  variables:\n" +
				"    - {name: list, type: String, value: 'a,b'}\n    - {name: json, type: String, value: '[\"x\", 2]'}\n" +
				"    - {name: two, type: Number, value: 2}\n  stages:\n"
			w := newWorldOf(t, pipeline(t, p+indent(stage("build", run("a", "strategy: "+test.strategy)), 4)))
			w.begin().play()
			a := w.step("a")
			if test.fails != "" {
				assert.Equal(t, Failed, a.Status)
				assert.Contains(t, a.Reason, "strategy: ")
				assert.Contains(t, a.Reason, test.fails)
				return
			}
			if test.children == "" {
				assert.Equal(t, Skipped, a.Status)
				assert.Equal(t, `the condition of the strategy is false: <+pipeline.name> == "x"`, a.Reason)
				assert.Equal(t, []Value{{"<+pipeline.name>", "p"}}, a.Values)
				return
			}
			assert.Equal(t, Succeeded, a.Status, a.Reason)
			var children []string
			for _, path := range a.Children {
				n := w.node(path)
				var values []string
				for _, key := range []string{"os", "v", "s"} {
					if value, ok := n.Matrix[key]; ok {
						values = append(values, text(value))
					}
				}
				if item, ok := n.Repeat["partition"]; ok {
					values = append(values, text(item))
				} else if item, ok := n.Repeat["item"]; ok {
					values = append(values, text(item))
				}
				children = append(children, n.Postfix+":"+strings.Join(values, ","))
			}
			assert.Equal(t, test.children, strings.Join(children, " "))
			assert.Len(t, w.started, len(children))
		})
	}
}

func TestAStrategyStartsNoMoreChildrenThanItMay(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"{parallelism: 5, maxConcurrency: 2}", "{matrix: {a: [1, 2, 3, 4, 5], maxConcurrency: 2}}", "{repeat: {times: 5, maxConcurrency: 2}}"} {
		w := build(t, run("a", "strategy: "+strategy))
		for _, id := range []string{"a_0", "a_1", "a_2", "a_3", "a_4"} {
			w.hold[id] = true
		}
		w.begin().drain()
		assert.Equal(t, []string{"a_0", "a_1"}, w.started)
		assert.Equal(t, "waits for its turn in the strategy", w.step("a_2").Reason)
		w.send(w.step("a_1").Path, 1, exit(1))
		w.drain()
		assert.Equal(t, []string{"a_0", "a_1", "a_2"}, w.started, "a failed sibling does not skip the next")
		for _, id := range []string{"a_0", "a_2", "a_3", "a_4"} {
			w.send(w.step(id).Path, 1, Result{})
			w.drain()
		}
		assert.Equal(t, Failed, w.step("a").Status)
		assert.Equal(t, "step a_1: exit code 1", w.step("a").Reason)
		assert.Equal(t, Failed, w.node(rootPath).Status)
	}
}

func TestEachChildOfAStrategyDecidesItsWhen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stage("build", group("g", run("a")+run("b"), `strategy: {matrix: {v: [x, y]}}`, `when: {stageStatus: Success, condition: '<+matrix.v> == "y"'}`)))
	w.begin().play()
	assert.Equal(t, Skipped, w.step("g_0").Status)
	assert.Equal(t, []string{"a", "b"}, w.started)
	assert.Equal(t, Succeeded, w.step("g_1.steps.b").Status)
	assert.Equal(t, Succeeded, w.node(rootPath).Status)
}

func TestAFailureInALoopedGroupSkipsTheRestOfTheGroupOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stage("build", group("g", run("a")+run("b"), `strategy: {matrix: {v: [x, y], maxConcurrency: 1}}`)+run("c")))
	w.results["a"] = []Result{exit(1), {}}
	w.begin().play()
	assert.Equal(t, []string{"a", "a", "b"}, w.started)
	assert.Equal(t, Skipped, w.step("g_0.steps.b").Status)
	assert.Equal(t, Failed, w.step("g").Status)
	assert.Equal(t, Skipped, w.step("c").Status)
}

func TestOnFailureOfAStrategyEndsOrIgnoresTheOthers(t *testing.T) {
	t.Parallel()
	for onFailure, status := range map[string]Status{"abort": Aborted, "ignore": IgnoreFailed} {
		w := build(t, run("a", "strategy: {parallelism: 3, maxConcurrency: 2, onFailure: "+onFailure+"}"))
		w.hold["a_1"] = true
		w.results["a_0"] = []Result{exit(1)}
		w.begin().drain()
		if onFailure == "ignore" {
			assert.Equal(t, []string{"a_0", "a_1", "a_2"}, w.started)
			w.send(w.step("a_1").Path, 1, Result{})
			w.play()
		} else {
			assert.Equal(t, []string{"a_0", "a_1"}, w.started)
			assert.Equal(t, Aborted, w.step("a_1").Status)
			assert.Equal(t, Skipped, w.step("a_2").Status)
		}
		assert.Equal(t, status, w.step("a").Status)
	}
}

func TestChildrenOfStrategiesKnowTheirPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stage("build", `
		- step:
		    identifier: a
		    name: step
		    type: Run
		    spec:
		      command: <+stage.matrix.v> <+matrix.w> <+matrix.v> <+strategy.iteration>/<+strategy.iterations> <+strategy.identifierPostFix> <+strategy.node.build.iteration> <+step.identifierPostFix> <+stage.identifier>
		    strategy: {matrix: {w: [p, q]}}
		`, "strategy: {matrix: {v: [x, y]}}"))
	w.begin().play()
	require.Equal(t, Succeeded, w.node(rootPath).Status, w.node(rootPath).Reason)
	var commands []string
	for _, step := range w.steps {
		commands = append(commands, step.Node[len("pipeline.stages."):]+" "+text(step.Spec["command"]))
	}
	slices.Sort(commands)
	assert.Equal(t, []string{
		"build_0.spec.execution.steps.a_0 x p x 0/2 _0 0 _0 build_0", "build_0.spec.execution.steps.a_1 x q x 1/2 _1 0 _1 build_0",
		"build_1.spec.execution.steps.a_0 y p y 0/2 _0 1 _0 build_1", "build_1.spec.execution.steps.a_1 y q y 1/2 _1 1 _1 build_1",
	}, commands)
	assert.Equal(t, "step_1", w.node("build_1.spec.execution.steps.a_1").Name)
	env := w.steps["pipeline.stages.build_1.spec.execution.steps.a_0"].Environment
	assert.Equal(t, map[string]string{
		"HARNESS_STAGE_INDEX": "1", "HARNESS_STAGE_TOTAL": "2", "HARNESS_STEP_INDEX": "0", "HARNESS_STEP_TOTAL": "2", "HARNESS_NODE_INDEX": "0",
		"HARNESS_NODE_TOTAL": "2", "DRONE_STAGE_STATUS": "SUCCESS", "DRONE_BUILD_STATUS": "SUCCESS", "CI_BUILD_STATUS": "SUCCESS",
	}, env)
	assert.Equal(t, "1", w.opened["pipeline.stages.build_1"].Environment["HARNESS_STAGE_INDEX"])
}

func TestAStrategyWhoseChildHasTheNameOfAStepFails(t *testing.T) {
	t.Parallel()
	w := build(t, run("a", "strategy: {parallelism: 2}")+run("a_1"))
	w.begin().play()
	assert.Equal(t, Failed, w.step("a").Status)
	assert.Contains(t, w.step("a").Reason, "the identifier a_1")
}

// Only liveStatus has the steps of a strategy that still runs.
func TestTheLiveStatusIncludesStepsOfLoops(t *testing.T) {
	t.Parallel()
	const words = "<+stage.status> <+stage.currentStatus> <+stage.liveStatus> <+pipeline.currentStatus> <+pipeline.liveStatus>"
	w := build(t, strings.Replace(run("a", "strategy: {repeat: {times: 2, maxConcurrency: 1}}"), "echo", words, 1))
	w.results["a_0"] = []Result{exit(1)}
	w.begin().play()
	command := func(step string) any { return w.steps[w.step(step).Path].Spec["command"] }
	assert.Equal(t, "RUNNING SUCCEEDED SUCCEEDED SUCCEEDED SUCCEEDED", command("a_0"))
	assert.Equal(t, "RUNNING SUCCEEDED FAILED SUCCEEDED FAILED", command("a_1"))
}
