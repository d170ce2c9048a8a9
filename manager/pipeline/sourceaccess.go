package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
)

// The kinds of the manager's connectors that a source may have, with the address of a public service.
var (
	gitKinds      = []string{"git", "github", "gitlab", "bitbucket", "gitea", "azure-repos"}
	registryKinds = []string{"registry", "docker-hub", "harbor", "artifactory"}

	publicAddress = map[string]string{
		"github": "https://github.com", "gitlab": "https://gitlab.com", "bitbucket": "https://bitbucket.org", "azure-repos": "https://dev.azure.com",
	}
)

// managed returns a connector of the manager. It reports false if the manager has none with the id.
// It may call a manager in another process, so it must not be called in a transaction.
func (s *Service) managed(ctx context.Context, account, id string) (api.Connector, bool, error) {
	if id == "" {
		return api.Connector{}, false, nil
	}
	kept, err := s.connectorsOf(ctx, account)
	if i := slices.IndexFunc(kept, func(c api.Connector) bool { return c.ID == id }); i >= 0 {
		return kept[i], true, nil
	}
	return api.Connector{}, false, err
}

// sourceAccess returns the address of a source, and the credentials of its connector as references. The connectors of
// the manager have precedence over those of the settings.
func (s *Service) sourceAccess(ctx context.Context, account string, t *savedTrigger) (address string, auth *source.Auth, hostKeys string, err error) {
	src := t.Source
	kind, kinds := steps.GitConnector, gitKinds
	if t.Kind == registryTrigger {
		kind, kinds = steps.RegistryConnector, registryKinds
	}
	c, ok, err := s.managed(ctx, account, src.Connector)
	if err != nil {
		return "", nil, "", err
	}
	if !ok {
		address, auth, err = s.table.SourceAccess(kind, src.Connector, src.Repository)
		if err != nil {
			err = fmt.Errorf("%w: source.connector %w", ErrInvalid, err)
		}
		return address, auth, "", err
	}
	if !slices.Contains(kinds, c.Kind) {
		return "", nil, "", fmt.Errorf("%w: source.connector names the connector %q of the kind %s: use one of %s", ErrInvalid, c.ID, c.Kind, strings.Join(kinds, ", "))
	}
	base := cmp.Or(c.Address, publicAddress[c.Kind])
	address = src.Repository
	if kind == steps.GitConnector && !strings.Contains(address, "://") && !strings.Contains(address, "@") {
		address = strings.TrimSuffix(base, "/") + "/" + strings.TrimPrefix(address, "/")
	}
	if !steps.SameHost(base, address) {
		return "", nil, "", fmt.Errorf("%w: source.connector names the connector %q, whose credentials are for another host: use a repository of its host", ErrInvalid, c.ID)
	}
	return address, managedAuth(&c), c.Options["known_hosts"], nil
}

// managedAuth returns the credentials of a connector as references, or nil.
func managedAuth(c *api.Connector) *source.Auth {
	ref := func(name string) string {
		if c.Secrets[name] == "" {
			return ""
		}
		return "${{secrets." + c.Secrets[name] + "}}"
	}
	auth := source.Auth{Username: cmp.Or(ref("username"), c.Options["username"]), Password: cmp.Or(ref("token"), ref("password")), Key: ref("key")}
	if auth.Username == "" && auth.Password != "" && c.Kind == "bitbucket" {
		auth.Username = "x-token-auth"
	}
	if auth == (source.Auth{}) {
		return nil
	}
	return &auth
}
