package pipeline_test

import (
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
