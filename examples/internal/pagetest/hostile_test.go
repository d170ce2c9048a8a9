package pagetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// attack is markup and a script that would show itself in the title of the window.
const attack = `<img src=x onerror="window.attacked=1"><script>window.attacked=2</script>"><svg/onload=window.attacked=3>`

// hostile has the attack in every field that takes text.
func hostile() string {
	a := strings.ReplaceAll(attack, `'`, `''`)
	return strings.NewReplacer("ATTACK", a).Replace(`
pipeline:
  identifier: hostile
  name: 'ATTACK'
  variables:
    - {name: v, type: String, value: 'ATTACK'}
  stages:
    - stage:
        identifier: one
        name: 'stage ATTACK'
        type: CI
        strategy: {matrix: {axis: ['ATTACK', 'javascript:window.attacked=4']}}
        spec:
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step:
                  identifier: out
                  name: 'step ATTACK'
                  type: Run
                  spec:
                    envVariables: {V: <+pipeline.variables.v>}
                    command: |-
                      printf '%s\n' "::group::$V" "$V" "error $V" "$(printf '\033[31m')$V"
                      printf '\033]8;;javascript:window.attacked=5\033\\link\033]8;;\033\\ \033]0;title\007 \033[2J\n'
                      export OUT="$V"
                    outputVariables: [{name: OUT}]
              - step:
                  identifier: skipped
                  name: Skipped
                  type: Run
                  when: {stageStatus: Success, condition: <+pipeline.variables.v> == "x"}
                  spec: {command: echo never}
`)
}

func TestTextOfOthersIsNeverMarkup(t *testing.T) {
	m := site(t)
	run := start(t, m, api.RunRequest{
		YAML: hostile(), Branch: attack, User: attack, Labels: map[string]string{"x": attack}, Codebase: map[string]any{"branch": attack},
	})
	require.Equal(t, "SUCCEEDED", ended(t, m, run.ID).Status)
	p := signedIn(t, m)
	safe := func(where string) {
		t.Helper()
		assert.True(t, value[bool](p, `window.attacked === undefined && !document.querySelector('main img, main script, main iframe, main a[href^="javascript"]')`), where)
	}
	p.visit("#/runs?pipeline=hostile")
	p.shows("td", attack)
	safe("the list")
	p.visit("#/runs/" + run.ID)
	p.shows("h1", attack)
	p.shows(".line", "error "+attack)
	p.shows(".line .group", attack)
	safe("the log")
	p.enter("Search the log", "onerror")
	p.shows("mark", "onerror")
	safe("the search")
	for view, text := range map[string]string{"timeline": "step " + attack, "expressions": attack, "yaml": attack, "logs": "error " + attack} {
		p.visit("#/runs/" + run.ID + "?view=" + view)
		p.shows("main", text)
		safe(view)
	}
	p.visit("#/runs/" + run.ID + "?tab=details")
	p.shows(".details", attack)
	safe("the details")
	p.visit("#/stages")
	p.shows(".row", "stage "+attack)
	safe("the stages")
	p.visit("#/" + attack)
	p.shows("h1", "There is no such view.")
	safe("an address")
}
