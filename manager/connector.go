package manager

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/manager/api"
)

// Bounds of connectors.
const (
	// maxConnectors is the largest number of connectors of an account, and
	// maxAllConnectors of all accounts.
	maxConnectors    = 1_000
	maxAllConnectors = 10_000
	// maxConnectorFields is the largest number of secrets, and of options.
	maxConnectorFields = 50
	// maxConnectorText is the largest size of the address and of a reference.
	maxConnectorText = 4 << 10
	// maxConnectorOptions is the largest size of all options. One may be a list of
	// certificates.
	maxConnectorOptions = 64 << 10
)

// SetConnector adds a connector, or replaces the one with its id. It fails with
// [ErrInvalid], for example if a secret is not a reference, and with [ErrBudget].
func (m *Manager) SetConnector(ctx context.Context, account string, c api.Connector) (api.Connector, error) {
	if err := firstError(m.checkAccount(account), checkConnector(&c)); err != nil {
		return api.Connector{}, err
	}
	c.Selectors = withoutBlank(c.Selectors)
	r, err := m.applyCommand(ctx, &command{Account: account, SetConnector: &c})
	if err != nil {
		return api.Connector{}, err
	}
	return *r.connector, nil
}

// checkConnector checks the values of a connector. The delegate that tests it knows which
// kinds, secrets and options there are.
func checkConnector(c *api.Connector) error {
	if c.ID == "" {
		return fmt.Errorf("%w: id is missing: a connector needs one", ErrInvalid)
	}
	if c.Kind == "" {
		return fmt.Errorf("%w: kind is missing: docs/connectors.md lists the kinds", ErrInvalid)
	}
	if err := firstError(
		checkID("id", c.ID),
		checkSize("name", len(c.Name), maxName),
		checkSize("kind", len(c.Kind), maxName),
		checkSize("address", len(c.Address), maxConnectorText),
		checkPlain("address", c.Address),
		checkNames("selectors", c.Selectors),
		checkCount("secrets", len(c.Secrets), maxConnectorFields),
		checkCount("options", len(c.Options), maxConnectorFields),
	); err != nil {
		return err
	}
	if u, err := url.Parse(c.Address); err == nil && u.User != nil {
		if _, has := u.User.Password(); has {
			return fmt.Errorf("%w: address has a password; put it into a secret store, and its reference into secrets.password", ErrInvalid)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Secrets)) {
		if err := cmp.Or(checkSize("a name in secrets", len(name), maxName), checkReference("secrets."+name, c.Secrets[name])); err != nil {
			return err
		}
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(c.Options)) {
		size += len(name) + len(c.Options[name])
		if err := checkPlain("options."+name, c.Options[name]); err != nil {
			return err
		}
	}
	return checkSize("options", size, maxConnectorOptions)
}

// checkPlain refuses references and templates, which the delegate would replace.
func checkPlain(path, text string) error {
	if strings.Contains(text, "${{") || strings.Contains(text, "<{") {
		return fmt.Errorf("%w: %s contains ${{ or <{; put references into secrets", ErrInvalid, path)
	}
	return nil
}

var reference = regexp.MustCompile("^([a-z][a-z0-9+.-]*)://[^\\s\"'`\\\\{}<>\\x00-\\x1f]+$")

// checkReference refuses a text that is not the reference of a secret. The error does
// not quote it, because it may be the secret.
func checkReference(path, text string) error {
	if err := checkSize(path, len(text), maxConnectorText); err != nil {
		return err
	}
	m := reference.FindStringSubmatch(text)
	u, err := url.Parse(text)
	if m == nil || err != nil || u.User != nil || slices.Contains([]string{"http", "https", "ssh", "git", "ftp"}, m[1]) {
		return fmt.Errorf("%w: %s is not a reference: write a URL such as vault://kv/ci#token or env://NAME, never the value", ErrInvalid, path)
	}
	return nil
}

// setConnector adds or replaces a connector.
func (c *core) setConnector(account string, con api.Connector) (*api.Connector, error) {
	k := key{account, con.ID}
	if c.connectors[k] == nil {
		own := 0
		for other := range c.connectors {
			if other.account == account {
				own++
			}
		}
		if own >= maxConnectors {
			return nil, fmt.Errorf("%w: connectors of the account: there are %d; remove some", ErrBudget, own)
		}
		if len(c.connectors) >= maxAllConnectors {
			return nil, fmt.Errorf("%w: connectors of all accounts: there are %d", ErrBudget, maxAllConnectors)
		}
	}
	con.UpdatedAt = c.at.UTC()
	c.connectors[k] = &con // commands never change it: others may hold it
	return &con, nil
}

func (c *core) deleteConnector(account, id string) error {
	k := key{account, id}
	if c.connectors[k] == nil {
		return fmt.Errorf("connector %q: %w", id, ErrNotFound)
	}
	delete(c.connectors, k)
	return nil
}

// Connector returns a connector. It fails with [ErrNotFound]. The caller must not change
// its maps and lists.
func (m *Manager) Connector(account, id string) (api.Connector, error) {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if con := c.connectors[key{account, id}]; con != nil {
		return *con, nil
	}
	return api.Connector{}, fmt.Errorf("connector %q: %w", id, ErrNotFound)
}

// Connectors returns an account's connectors, ordered by id. The caller must not change
// their maps and lists.
func (m *Manager) Connectors(account string) []api.Connector {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []api.Connector{}
	for k, con := range c.connectors {
		if k.account == account {
			out = append(out, *con)
		}
	}
	slices.SortFunc(out, func(a, b api.Connector) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// DeleteConnector removes a connector. It fails with [ErrNotFound].
func (m *Manager) DeleteConnector(ctx context.Context, account, id string) error {
	_, err := m.applyCommand(ctx, &command{Account: account, DeleteConnector: &idCommand{id}})
	return err
}

func (m *Manager) listConnectors(w http.ResponseWriter, r *http.Request) {
	if err := m.journal.Sync(r.Context()); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Connectors []api.Connector `json:"connectors"`
	}{m.Connectors(account(r))})
}
