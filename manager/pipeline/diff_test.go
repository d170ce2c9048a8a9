package pipeline_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

const varied = `pipeline:
  identifier: varied
  name: varied
  variables:
    - {name: tag, type: String, value: <+input>.default(v0)}
    - {name: whole, type: String, value: release-<+pipeline.variables.tag>}
  stages:
    - stage:
        identifier: build
        name: build
        type: CI
        spec:
          execution:
            steps:
              - step:
                  identifier: make
                  name: make
                  type: Run
                  strategy: {matrix: {os: [linux, mac]}}
                  spec:
                    command: export OUT=<+matrix.os>-<+pipeline.variables.tag>
                    outputVariables: [{name: OUT}]
              - step:
                  identifier: only
                  name: only
                  type: Run
                  when: {stageStatus: Success, condition: <+codebase.branch> == "main"}
                  spec:
                    command: 'echo "<+codebase.title>"'
                    envVariables: {WHOLE: <+pipeline.variables.whole>}
              - step:
                  identifier: never
                  name: never
                  type: Run
                  when: {stageStatus: Failure}
                  spec: {command: "echo <+pipeline.name>", envVariables: {TOKEN: <+secrets.getValue("never_used")>}}
`

func TestARunIsShownResolvedAndComparedWithAnother(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 2))
	url := serve(t, s)
	run(t, s, varied, func(r *api.RunRequest) {
		r.ID, r.Codebase = "one", map[string]any{"branch": "main", "title": "<+secrets.getValue('a')>"}
	})
	run(t, s, strings.Replace(varied, "echo <+pipeline.name>", "echo other", 1), func(r *api.RunRequest) {
		r.ID, r.Codebase, r.Inputs = "two", map[string]any{"branch": "side", "title": "x"}, map[string]string{"tag": "v2"}
	})

	status, text := call(t, "GET", url+"/api/runs/one/resolved", "")
	require.Equal(t, 200, status, text)
	for _, want := range []string{
		"value: release-v0\n", "identifier: make_0\n", "command: export OUT=linux-v0\n", "identifier: make_1\n", "command: export OUT=mac-v0\n",
		`condition: '"main" == "main"'`, "WHOLE: release-v0\n", `<+secrets.getValue('a')>`,
		"command: echo <+pipeline.name>\n", // it was never evaluated
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "strategy")
	again, problems := call(t, "POST", url+"/api/lint", encode(t, api.RunRequest{YAML: text}))
	assert.Equal(t, 200, again, problems)
	assert.NotContains(t, problems, `"severity":"error"`, "it is still a pipeline")

	status, body := call(t, "GET", url+"/api/runs/one/diff?with=two", "")
	require.Equal(t, 200, status, body)
	var d struct {
		Run, Other api.Run
		Definition string
		Inputs     []struct{ Name, Value, Other string }
		Nodes      []struct {
			Path        string
			Changed     bool
			Status      string
			OtherStatus string `json:"other_status"`
			Duration    *int64 `json:"duration_ms"`
			Outputs     []struct{ Name, Value, Other string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &d))
	assert.Equal(t, "one two", d.Run.ID+" "+d.Other.ID)
	assert.Contains(t, d.Definition, "-                    command: echo <+pipeline.name>\n+                    command: echo other\n")
	assert.Contains(t, d.Definition, "-      value: v0\n+      value: v2\n")
	assert.Equal(t, []struct{ Name, Value, Other string }{
		{"codebase.branch", "main", "side"}, {"codebase.title", "<+secrets.getValue('a')>", "x"}, {"pipeline.variables.tag", "v0", "v2"},
	}, d.Inputs)
	changed := map[string]string{}
	for _, n := range d.Nodes {
		if n.Changed {
			_, id, _ := strings.Cut(n.Path, "execution.steps.")
			changed[id] = n.Status + " " + n.OtherStatus
			for _, o := range n.Outputs {
				changed[id] += " " + o.Value + " " + o.Other
			}
		}
		if n.Status == "SUCCEEDED" {
			assert.NotNil(t, n.Duration, n.Path)
		}
	}
	assert.Equal(t, map[string]string{
		"make_0": "SUCCEEDED SUCCEEDED linux-v0 linux-v2", "make_1": "SUCCEEDED SUCCEEDED mac-v0 mac-v2", "only": "SUCCEEDED SKIPPED",
	}, changed)
	for path, want := range map[string]int{"/api/runs/one/diff": 400, "/api/runs/one/diff?with=none": 404, "/api/runs/none/resolved": 404} {
		status, _ := call(t, "GET", url+path, "")
		assert.Equal(t, want, status, path)
	}
}
