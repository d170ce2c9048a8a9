package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// A pipeline finds the connectors that the manager keeps for the account, in this process and in another one (rule G3).
func TestAPipelineUsesTheConnectorsOfTheManager(t *testing.T) {
	t.Parallel()
	m := newManager(t, 2)
	const text = `pipeline:
  identifier: kept
  name: kept
  properties: {ci: {codebase: {connectorRef: account.source, repoName: web, build: {type: branch, spec: {branch: main}}}}}
  stages:
    - stage:
        identifier: build
        name: build
        type: CI
        spec:
          cloneCodebase: true
          platform: {os: Linux, arch: Amd64}
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: a, name: a, type: Run, spec: {command: "true"}}
`
	remote := newRemote(t, serveManager(t, m).URL)
	for _, s := range []*pipeline.Service{newService(t, m), newService(t, remote)} {
		assert.Contains(t, tree(run(t, s, text)), `names the connector "account.source"`)
	}
	_, err := m.SetConnector(t.Context(), account, api.Connector{
		ID: "source", Kind: "gitea", Address: "http://127.0.0.1:1/acme", Secrets: map[string]string{"token": "env://GIT"},
	})
	require.NoError(t, err)
	fresh := newRemote(t, serveManager(t, m).URL) // the other one may have kept the list for some seconds
	for _, s := range []*pipeline.Service{newService(t, m), newService(t, fresh)} {
		// The delegate has no secret providers, so the reference of the connector fails the clone.
		assert.Contains(t, tree(run(t, s, text)), "${{secrets.env://GIT}}")
	}
}
