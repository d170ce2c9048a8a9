package pipeline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

func TestLintKnowsTheStepTypesOfTheSettings(t *testing.T) {
	t.Parallel()
	req := api.RunRequest{YAML: `pipeline:
  name: p
  identifier: p
  stages:
    - stage:
        name: s
        identifier: s
        type: CI
        spec: {execution: {steps: [{step: {name: a, identifier: a, type: Semgrep, spec: {mode: full}}}]}}
`}
	require.ErrorContains(t, Lint(req, Settings{}, nil), "has the type Semgrep, which cannot run here")
	settings, err := ReadSettings([]byte("types: {Semgrep: {image: example/scan, settings: [{field: mode, variable: MODE}]}}"))
	require.NoError(t, err)
	require.Empty(t, Lint(req, settings, nil))
}
