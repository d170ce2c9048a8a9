package pagetest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// waiting asks a person three times: for an approval, for inputs, and after a failure.
const waiting = `
pipeline:
  identifier: waiting
  name: Waiting
  variables:
    - {name: place, type: String, value: <+input>.default(garden)}
  stages:
    - stage:
        identifier: build
        name: Build
        type: CI
        spec:
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: agree, name: Agree, type: HarnessApproval, spec: {approvalMessage: plant in the <+pipeline.variables.place>}}
              - step:
                  identifier: plant
                  name: Plant
                  type: Run
                  spec:
                    envVariables:
                      TREE: <+input>.executionInput()
                      SIZE: <+input>.default(small).allowedValues(small,large).executionInput()
                    command: echo "a $SIZE $TREE"; exit 3
                  failureStrategies:
                    - onFailure:
                        errors: [AllErrors]
                        action: {type: ManualIntervention, spec: {timeout: 1h, onTimeout: {action: {type: Abort}}}}
`

func TestAPersonApprovesGivesInputsAndDecides(t *testing.T) {
	m := site(t)
	run := start(t, m, api.RunRequest{YAML: waiting, Codebase: map[string]any{"branch": "main"}})
	p := signedIn(t, m)
	p.visit("#/runs/" + run.ID)
	p.shows(".panel .badge", "waits for approval")
	p.shows(".panel .reason", "plant in the garden")
	p.press(".panel button", "Approve")
	p.enter("Comment", "good soil")
	p.press("dialog button", "Approve")

	p.shows(".panel .badge", "waits for input")
	p.press(".tabs a", "Inputs")
	p.shows(".details td", "garden")
	p.shows(".details th", "codebase.branch")
	p.shows(".details td", "not answered yet")
	p.press(".tabs a", "Steps")
	p.press(".panel button", "Answer")
	assert.Equal(t, []string{"small", "large"}, value[[]string](p, `[...document.querySelectorAll('dialog select option')].map(o => o.value)`))
	assert.Equal(t, "small", value[string](p, `document.querySelector('dialog select').value`))
	p.run(act(`document.querySelector('dialog select').value = 'large'`))
	p.enter("spec.envVariables.TREE", "pear")
	p.press("dialog button", "Send")

	p.shows(".panel .badge", "waits for a decision")
	p.shows(".line", "a large pear")
	p.press(".tabs a", "Inputs")
	p.shows(".details td", "pear")
	p.press(".tabs a", "Steps")
	p.press(".panel button", "Answer")
	p.run(act(`document.querySelector('dialog select').value = 'MarkAsSuccess'`))
	p.enter("Comment", "it stands")
	p.press("dialog button", "Send")
	p.shows(".run-title .badge", "succeeded")
	got := ended(t, m, run.ID)
	require.Equal(t, "SUCCEEDED", got.Status)

	run = start(t, m, api.RunRequest{YAML: waiting})
	p.visit("#/runs/" + run.ID)
	p.press(".panel button", "Reject")
	p.press("dialog button", "Reject")
	p.shows(".run-title .badge", "rejected")
}
