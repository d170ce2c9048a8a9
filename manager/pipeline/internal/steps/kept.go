package steps

import (
	"cmp"
	"maps"

	"github.com/delegate-io/dlite/manager/api"
)

// With returns a table that has the connectors that the manager keeps for an account, besides those of the settings. If both
// have an id, the connector of the manager wins: it is the one that its operator sees and tests.
func (t *Table) With(kept []api.Connector) *Table {
	if len(kept) == 0 {
		return t
	}
	all := maps.Clone(t.connectors)
	if all == nil {
		all = map[string]Connector{}
	}
	for i := range kept {
		all[kept[i].ID] = fromKept(&kept[i])
	}
	own := *t
	own.connectors = all
	return &own
}

// publicAddresses are the addresses of kinds of public services.
var publicAddresses = map[string]string{
	"github": "https://github.com", "gitlab": "https://gitlab.com", "bitbucket": "https://bitbucket.org", "docker-hub": "https://index.docker.io/v1/",
}

// fromKept returns a connector of the manager as steps use it. The kind of a connector that no step can use stays, so that
// an error names it.
func fromKept(k *api.Connector) Connector {
	c := Connector{Kind: k.Kind, URL: cmp.Or(k.Address, publicAddresses[k.Kind])}
	switch k.Kind {
	case "git", "github", "gitlab", "bitbucket", "gitea", "azure-repos":
		c.Kind = GitConnector
	case "registry", "docker-hub", "harbor", "acr", "gar":
		c.Kind = RegistryConnector
	case KubernetesConnector:
		return Connector{Kind: KubernetesConnector, Selectors: k.Selectors} // the delegates have the credentials
	case "ecr", "s3":
		c.Kind = AWSConnector
	}
	c.Username, c.UsernameSecret = k.Options["username"], k.Secrets["username"]
	if c.UsernameSecret != "" {
		c.Username = ""
	}
	c.PasswordSecret = cmp.Or(k.Secrets["token"], k.Secrets["password"])
	if c.Kind == GitConnector && c.PasswordSecret != "" && c.user() == "" {
		c.Username = "git" // a user must not be empty; servers ignore it for tokens
	}
	c.AccessKeySecret, c.SecretKeySecret = k.Secrets["access_key"], k.Secrets["secret_key"]
	if c.Kind == GCPConnector {
		c.KeySecret = k.Secrets["key"]
	}
	if c.Kind == RegistryConnector && k.Secrets["key"] != "" { // a key file of Google
		c.Username, c.PasswordSecret = "_json_key", k.Secrets["key"]
	}
	c.AssumeRole, c.ExternalID = k.Options["assume_role"], k.Options["external_id"]
	return c
}
