package steps

import (
	"bytes"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// defaultSecretURL is where the delegate finds a secret without an address in the settings: in its
// environment.
const defaultSecretURL = "env://{id}"

// plainRef matches a reference to a secret by its id, in the JSON of a payload. A reference in
// data from outside is escaped, and does not match.
var plainRef = regexp.MustCompile(`\$\{\{secrets\.([A-Za-z0-9_][A-Za-z0-9_.-]*)\}\}`)

// checkSecrets checks the addresses of secrets.
func (c *Config) checkSecrets() error {
	if c.SecretURL != "" && !strings.Contains(c.SecretURL, "{id}") {
		return fmt.Errorf("secret_url is %q: it must contain {id}", c.SecretURL)
	}
	for id, address := range c.Secrets {
		if u, err := url.Parse(address); err != nil || u.Scheme == "" {
			return fmt.Errorf("secrets.%s is not a URL of a secret, such as vault://kv/app#password", id)
		}
	}
	return nil
}

// resolvable replaces ids of secrets by addresses that a delegate can resolve.
func (t *Table) resolvable(payload []byte) []byte {
	return plainRef.ReplaceAllFunc(payload, func(ref []byte) []byte {
		id := string(plainRef.FindSubmatch(ref)[1])
		return bytes.Join([][]byte{[]byte("${{secrets."), []byte(t.secretURL(id)), []byte("}}")}, nil)
	})
}

// secretURL returns the address of a secret. The scope (account. or org.) may be left out in
// the settings.
func (t *Table) secretURL(id string) string {
	if address, ok := t.secrets[id]; ok {
		return address
	}
	for _, scope := range []string{"account.", "org."} {
		if plain, ok := strings.CutPrefix(id, scope); ok {
			id = plain
			break
		}
	}
	if address, ok := t.secrets[id]; ok {
		return address
	}
	return strings.ReplaceAll(t.anySecret, "{id}", id)
}
