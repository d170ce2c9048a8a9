package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var hello = oneStage("hello", `
              - step:
                  identifier: version
                  name: version
                  type: Run
                  spec:
                    command: |
                      export VERSION=1.2.3
                      echo built > file.txt
                    outputVariables: [{name: VERSION}]
              - step:
                  identifier: test
                  name: test
                  type: Run
                  spec:
                    command: test "$V" = 1.2.3 && grep built file.txt
                    envVariables:
                      V: <+steps.version.output.outputVariables.VERSION>
`)

func TestAPipelineRunsItsStepsAndPassesOutputsOn(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 2))
	r := run(t, s, hello)
	assert.Equal(t, "SUCCEEDED", r.Status, tree(r))
	assert.Equal(t, map[string]string{"VERSION": "1.2.3"}, node(t, r, ".version").Outputs)
	assert.Equal(t, int64(1), r.Number)
	require.False(t, r.EndedAt.IsZero())
	again := run(t, s, hello)
	assert.Equal(t, int64(2), again.Number)
}
