package pipeline_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline"
)

func TestARunMayHaveTheStepTypesOfTheSettings(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 1), func(c *pipeline.Config) {
		settings, err := pipeline.ReadSettings([]byte("types: {Scan: {image: example/scan}}"))
		require.NoError(t, err)
		c.Settings = settings
	})
	ended := run(t, s, oneStage("p", `
              - step: {name: a, identifier: a, type: Run, spec: {command: "true"}}
              - step: {name: b, identifier: b, type: Scan, when: {stageStatus: Success, condition: "false"}}
`))
	assert.Equal(t, "SUCCEEDED", ended.Status, tree(ended))
	assert.Equal(t, "SKIPPED", node(t, ended, ".b").Status)
}

// Account numbers, ids of users and ports are written without quotes. A step gets them as they are written.
func TestNumbersReachAStepAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 1))
	yaml := strings.Replace(oneStage("p", `
              - step:
                  name: a
                  identifier: a
                  type: Run
                  spec:
                    command: test "$ACCOUNT $LARGE $RATIO $VERSION $FRACTION $OF_STAGE $OF_PIPELINE" = "123456789012 9007199254740993 1234567.5 1.0 0.00001 123456789012 1234567.25"
                    envVariables:
                      ACCOUNT: 123456789012
                      LARGE: 9007199254740993
                      RATIO: 1234567.5
                      VERSION: 1.0
                      FRACTION: 0.00001
                      OF_STAGE: <+stage.variables.account>
                      OF_PIPELINE: <+pipeline.variables.ratio>
`), "        spec:\n", "        variables: [{name: account, type: Number, value: 123456789012}]\n        spec:\n", 1)
	yaml = strings.Replace(yaml, "  stages:\n", "  variables: [{name: ratio, type: Number, value: 1234567.25}]\n  stages:\n", 1)
	ended := run(t, s, yaml)
	assert.Equal(t, "SUCCEEDED", ended.Status, tree(ended))
}
