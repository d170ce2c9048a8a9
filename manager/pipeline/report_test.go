package pipeline_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A step keeps the failed tests of its reports and its artifact file, in bounds.
func TestTheReportsOfAStepAreKept(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 2))
	got := run(t, s, oneStage("reports", `
              - step:
                  identifier: test
                  name: test
                  type: Run
                  spec:
                    command: |-
                      { echo '<testsuite name="price">'
                        for i in $(seq 10 40); do echo "<testcase name=\"t$i\"><failure message=\"`+strings.Repeat("m", 400)+`\"/></testcase>"; done
                        echo '<testcase name="good"/></testsuite>'; } > report.xml
                      echo '{"kind":"fileUpload/v1","data":{"fileArtifacts":[{"name":"shop.tar"}]}}' > $PLUGIN_ARTIFACT_FILE
                    reports: {type: JUnit, spec: {paths: [report.xml]}}
              - step:
                  identifier: large
                  name: large
                  type: Run
                  spec: {command: head -c 5000 /dev/zero | tr '\0' a > $PLUGIN_ARTIFACT_FILE}`))
	require.Equal(t, "SUCCEEDED", got.Status)
	found := 0
	for _, n := range got.Nodes {
		switch n.Identifier {
		case "test":
			found++
			require.NotNil(t, n.Tests)
			assert.Equal(t, []int{32, 31, 1}, []int{n.Tests.Total, n.Tests.Failed, n.Tests.Passed})
			require.Len(t, n.Tests.Failures, 20)
			assert.Equal(t, "t10", n.Tests.Failures[0].Name)
			assert.Len(t, n.Tests.Failures[0].Message, 300)
			assert.Contains(t, string(n.Artifact), "shop.tar")
		case "large":
			found++
			assert.Nil(t, n.Tests)
			assert.Nil(t, n.Artifact, "it is too large for the run")
			assert.Equal(t, 5000, n.ArtifactBytes)
		}
	}
	assert.Equal(t, 2, found)
}
