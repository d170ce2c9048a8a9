package steps_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
)

// The connectors of the manager join those of the settings and win over them. Their references reach the delegate
// unchanged (rules S1, G3).
func TestConnectorsOfTheManagerWinOverTheSettings(t *testing.T) {
	t.Parallel()
	table, err := steps.New(steps.Config{Connectors: map[string]steps.Connector{
		"git":  {Kind: steps.GitConnector, URL: "https://settings.example/acme"},
		"left": {Kind: steps.GitConnector, URL: "https://left.example/acme"},
	}})
	require.NoError(t, err)
	own := table.With([]api.Connector{
		{ID: "git", Kind: "gitea", Address: "https://manager.example/acme", Secrets: map[string]string{"token": "vault://kv/ci#git"}},
		{ID: "hub", Kind: "github"}, {ID: "cluster", Kind: "kubernetes", Address: "https://k.example", Selectors: []string{"prod"}},
	})
	assert.Equal(t, "https://settings.example/acme/app", table.RepositoryURL("git", "app"), "the table of the settings stays")
	assert.Equal(t, "https://manager.example/acme/app", own.RepositoryURL("account.git", "app"))
	assert.Equal(t, "https://left.example/acme/app", own.RepositoryURL("left", "app"))
	assert.Equal(t, "https://github.com/acme/app", own.RepositoryURL("hub", "acme/app"))
	assert.Empty(t, own.RepositoryURL("cluster", "app"), "a cluster is no Git server")
	assert.Same(t, table, table.With(nil))
}
