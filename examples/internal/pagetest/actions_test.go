package pagetest

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/manager/api"
)

// asking has a step that fails and then waits for a person.
const asking = `
pipeline:
  identifier: asking
  name: Asking
  stages:
    - stage:
        identifier: build
        name: Build
        type: CI
        spec:
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step:
                  identifier: unsure
                  name: Unsure
                  type: Run
                  spec: {command: echo trouble; exit 3}
                  failureStrategies:
                    - onFailure:
                        errors: [AllErrors]
                        action: {type: ManualIntervention, spec: {timeout: 1h, onTimeout: {action: {type: Abort}}}}
`

func TestARunIsAbortedRetriedRepeatedAndAnswered(t *testing.T) {
	m := site(t)
	gate := filepath.Join(t.TempDir(), "gate")
	run := start(t, m, api.RunRequest{YAML: live(gate)})
	p := signedIn(t, m)
	p.visit("#/runs/" + run.ID)
	p.shows(".line", "before")
	p.press(".run-title button", "Abort")
	p.enter("Reason", "not needed")
	p.press("dialog button", "Abort")
	p.shows(".run-title .badge", "aborted")
	p.shows(".reason", "not needed")

	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	p.press(".panel button", "Retry from here")
	p.press("dialog button", "Retry")
	p.shows(".run-title .badge", "succeeded")
	p.press(".tree a .name", "Build · Attempt 2")
	p.shows(".details", "Earlier attempts")

	p.press(".run-title button", "Run again")
	p.press("dialog button", "Run again")
	p.until(`!location.hash.includes(` + quote(run.ID) + `)`)
	p.shows(".run-title .badge", "succeeded")

	run = start(t, m, api.RunRequest{YAML: asking})
	p.visit("#/runs/" + run.ID)
	p.shows(".panel .badge", "waits for a decision")
	p.press(".panel button", "Answer")
	p.run(act(`(s => { s.value = 'Ignore'; })(document.querySelector('dialog select'))`))
	p.enter("Comment", "known")
	p.press("dialog button", "Send")
	p.shows(".tree a .badge", "failure ignored")
	p.shows(".run-title .badge", "failure ignored")
}

func TestARunningStepIsMarkedAsFailedOnThePage(t *testing.T) {
	m := site(t)
	run := start(t, m, api.RunRequest{YAML: live(filepath.Join(t.TempDir(), "never"))})
	p := signedIn(t, m)
	p.visit("#/runs/" + run.ID)
	p.shows(".line", "before")
	p.press(".tree a .name", "Second")
	p.press(".panel button", "Mark as failed")
	p.enter("Comment", "it hangs")
	p.press("dialog button", "Mark as failed")
	p.shows(".run-title .badge", "failed")
	p.shows(".reason", "it hangs")
}

func TestAScheduleIsRunNowAndPaused(t *testing.T) {
	m := site(t)
	token, err := m.Token(time.Hour)
	require.NoError(t, err)
	body := `{"cron":"0 4 * * *","stage":{"name":"Nightly","steps":[{"id":"a","data":{"run":{"entrypoint":["true"]}}}]}}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, fmt.Sprintf("%s/api/schedules/nightly?accountId=%s", m.URL, url.QueryEscape(machine.Account)), strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)

	p := signedIn(t, m)
	p.visit("#/schedules")
	p.press("button", "Run now nightly")
	p.shows(".run-title .badge", "succeeded")
	p.shows("h1", "Nightly")
	p.visit("#/schedules")
	p.press("button", "Pause nightly")
	p.shows("td", "paused")
}
