package pagetest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// reporting has a report with a failed test whose name is markup, and a list of published files.
const reporting = `
pipeline:
  identifier: reporting
  name: Reporting
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
                  identifier: unit
                  name: Unit tests
                  type: Run
                  spec:
                    command: |-
                      cat > report.xml <<'END'
                      <testsuite name="price">
                        <testcase classname="shop" name="two &lt;b&gt;digits&lt;/b&gt;"><failure message="got 4,5, want 4.50"/></testcase>
                        <testcase classname="shop" name="good"/>
                      </testsuite>
                      END
                      exit 1
                    reports: {type: JUnit, spec: {paths: [report.xml]}}
              - step:
                  identifier: large
                  name: Large
                  type: Run
                  when: {stageStatus: All}
                  spec: {command: head -c 5000 /dev/zero | tr '\0' a > $PLUGIN_ARTIFACT_FILE}
              - step:
                  identifier: publish
                  name: Publish
                  type: Run
                  when: {stageStatus: All}
                  spec:
                    command: echo '{"kind":"fileUpload/v1","data":{"fileArtifacts":[{"name":"shop.tar","url":"https://files.example/shop.tar"}]}}' > $PLUGIN_ARTIFACT_FILE
`

func TestFailedTestsAndArtifactsOfARun(t *testing.T) {
	m := site(t)
	run := start(t, m, api.RunRequest{YAML: reporting})
	require.Equal(t, "FAILED", ended(t, m, run.ID).Status)
	p := signedIn(t, m)
	p.visit("#/runs/" + run.ID)
	p.press(".panel .tabs a", "Details")
	p.shows(".details .tests", "2 tests · 1 failed · 1 passed")
	p.shows(".details .results", "price · shop · two <b>digits</b>")

	p.press(".tabs a", "Tests and artifacts")
	p.shows(".details .results", "got 4,5, want 4.50")
	p.shows(".details .results", "shop.tar · https://files.example/shop.tar")
	p.shows(".details .sub", "The artifact file has 5,000 bytes")
	assert.Equal(t, []string{"Build · Unit tests", "Build · Large", "Build · Publish"}, value[[]string](p, `[...document.querySelectorAll('.details h2')].filter(e => e.checkVisibility()).map(e => e.innerText)`))
	check(p, "tests and artifacts", true)
	p.press(".details h2 a", "Build · Publish")
	p.shows(".details h3", "Artifacts")
	p.shows(".details .results", "shop.tar")
}
