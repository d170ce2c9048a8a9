package pagetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/manager/api"
)

// live runs until a file exists.
func live(gate string) string {
	return `
pipeline:
  identifier: live
  name: Live
  stages:
    - stage:
        identifier: build
        name: Build
        type: CI
        spec:
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: first, name: First, type: Run, spec: {command: echo one}}
              - step:
                  identifier: second
                  name: Second
                  type: Run
                  spec:
                    command: |-
                      echo before; while [ ! -e ` + gate + ` ]; do sleep 0.05; done; echo after
`
}

func TestARunIsFollowedFromSignInToItsEnd(t *testing.T) {
	m := site(t)
	gate := filepath.Join(t.TempDir(), "gate")
	p := signedIn(t, m)
	run := start(t, m, api.RunRequest{YAML: live(gate), Branch: "main", User: "ada"})

	p.shows("table .main-link", "Live #")
	name := fmt.Sprint("Live #", run.Number)
	p.until(`[...document.querySelectorAll('tbody tr')][0].innerText.includes('running')`)
	assert.GreaterOrEqual(t, 2, value[int](p, `performance.getEntriesByType('resource').filter(e => e.name.includes('/api/runs?') || e.name.endsWith('/api/runs')).length`), "the list is read when the view and its feed open, and follows events")
	p.press("table .main-link", name)
	p.shows("h1", name)
	p.shows(".tree a", "Second")
	p.shows(".line", "before")
	assert.NotContains(t, value[string](p, `document.querySelector('.lines').innerText`), "after")
	p.shows(".run-title .badge", "running")

	assert.NoError(t, os.WriteFile(gate, nil, 0o600))
	p.shows(".line", "after")
	p.shows(".run-title .badge", "succeeded")
	p.press(".tree a .name", "First")
	p.shows(".line", "one")
	assert.Equal(t, "SUCCEEDED", ended(t, m, run.ID).Status)
}
