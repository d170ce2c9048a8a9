package steps

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/task/stage"
)

// The kinds of connectors.
const (
	GitConnector         = "git"
	RegistryConnector    = "registry"
	AWSConnector         = "aws"
	GCPConnector         = "gcp"
	ArtifactoryConnector = "artifactory"
	KubernetesConnector  = "kubernetes"
)

// Connector is an address with credentials. The credentials are ids of secrets, which the
// delegate resolves; the pipeline service never sees their values.
type Connector struct {
	// Kind is git, registry, aws, gcp, artifactory or kubernetes.
	Kind string `json:"kind" yaml:"kind"`
	// URL is the address. A git connector of an account ends before the name of the
	// repository, which the pipeline adds.
	URL string `json:"url,omitempty" yaml:"url"`
	// Username is plain text. UsernameSecret is the id of a secret with it.
	Username       string `json:"username,omitempty" yaml:"username"`
	UsernameSecret string `json:"username_secret,omitempty" yaml:"username_secret"`
	// PasswordSecret is the id of the secret with the password or the token.
	PasswordSecret string `json:"password_secret,omitempty" yaml:"password_secret"`
	// AccessKeySecret and SecretKeySecret are ids of secrets for aws, and HMAC keys for gcp, with
	// which the caches and uploads of gcp need no image. KeySecret is the key file of gcp.
	AccessKeySecret string `json:"access_key_secret,omitempty" yaml:"access_key_secret"`
	SecretKeySecret string `json:"secret_key_secret,omitempty" yaml:"secret_key_secret"`
	KeySecret       string `json:"key_secret,omitempty" yaml:"key_secret"`
	// AssumeRole and ExternalID are for aws.
	AssumeRole string `json:"assume_role,omitempty" yaml:"assume_role"`
	ExternalID string `json:"external_id,omitempty" yaml:"external_id"`
	// Selectors are for kubernetes: tags of the delegates that create pods in the cluster. The
	// delegates have its credentials.
	Selectors []string `json:"selectors,omitempty" yaml:"selectors"`
}

// anonymousHub is the connector that every account has: the public images of Docker Hub.
const anonymousHub = "account.harnessImage"

func (c Connector) check(id string) error {
	kinds := []string{GitConnector, RegistryConnector, AWSConnector, GCPConnector, ArtifactoryConnector, KubernetesConnector}
	if !slices.Contains(kinds, c.Kind) {
		return fmt.Errorf("connectors.%s.kind is %q: use one of %s", id, c.Kind, strings.Join(kinds, ", "))
	}
	if c.Username != "" && c.UsernameSecret != "" {
		return fmt.Errorf("connectors.%s has both username and username_secret: remove one", id)
	}
	if c.Kind != KubernetesConnector && len(c.Selectors) > 0 {
		return fmt.Errorf("connectors.%s.selectors is only for the kind %s", id, KubernetesConnector)
	}
	if rest := c; c.Kind == KubernetesConnector {
		rest.Kind, rest.Selectors = "", nil
		if !reflect.DeepEqual(rest, Connector{}) {
			return fmt.Errorf("connectors.%s of the kind %s takes only selectors: the delegate has the address and the credentials of its cluster", id, KubernetesConnector)
		}
	}
	if c.URL == "" && (c.Kind == GitConnector || c.Kind == ArtifactoryConnector) {
		return fmt.Errorf("connectors.%s.url is required for the kind %s", id, c.Kind)
	}
	if u, err := url.Parse(c.URL); err == nil && u.User != nil {
		if _, secret := u.User.Password(); secret {
			return fmt.Errorf("connectors.%s.url contains a password: use password_secret", id)
		}
	}
	return nil
}

// user returns the user name or a reference to it.
func (c Connector) user() string {
	if c.UsernameSecret != "" {
		return secretRef(c.UsernameSecret)
	}
	return c.Username
}

// secretRef returns the reference that the delegate resolves.
func secretRef(id string) string {
	if id == "" {
		return ""
	}
	return "${{secrets." + id + "}}"
}

// auth returns the credentials for a server, or nil if the connector has none.
func (c Connector) auth(address string) *stage.Auth {
	if c.user() == "" && c.PasswordSecret == "" {
		return nil
	}
	return &stage.Auth{Address: address, Username: c.user(), Password: secretRef(c.PasswordSecret)}
}

// hasKeys reports whether the connector of a step of Google Cloud Storage has HMAC keys.
func (t *Table) hasKeys(f fields) bool {
	one := fields{path: f.path, values: f.values, err: new(error)} // the step reports an error itself
	c, ok := t.connector(one, GCPConnector)
	return ok && c.AccessKeySecret != ""
}

// connector returns the connector that connectorRef names. It reports false for an empty name and
// for the anonymous Docker Hub.
func (t *Table) connector(f fields, kinds ...string) (Connector, bool) {
	name := "connectorRef"
	id := f.text(name)
	if id == "" && slices.Contains(kinds, RegistryConnector) {
		// A registry of Harness: the settings have its connector under the same id.
		if name = "registryRef"; f.has(name) {
			id = f.text(name)
		}
	}
	if id == "" || id == anonymousHub {
		return Connector{}, false
	}
	c, ok := t.connectors[id]
	if !ok {
		// account. and org. name the scope; the settings have one scope.
		c, ok = t.connectors[id[strings.LastIndex(id, ".")+1:]]
	}
	switch {
	case !ok && t.missing != nil:
		id = id[strings.LastIndex(id, ".")+1:]
		t.missing[id] = kinds[0]
		c = Connector{Kind: kinds[0]}
		if c.Kind == GitConnector || c.Kind == ArtifactoryConnector { // others need no address
			c.URL = "https://" + url.PathEscape(id) + ".invalid"
		}
		return c, true
	case !ok:
		with := "its address and the ids of its secrets"
		if kinds[0] == KubernetesConnector {
			with = "the selectors of the delegates of the cluster"
		}
		f.fail(name, "names the connector %q, which the settings of the pipeline service do not have: add connectors: {%s: {kind: %s}} to them, with %s, or keep it in the manager (dlite connectors set)", id, id[strings.LastIndex(id, ".")+1:], kinds[0], with)
		return Connector{}, false
	case !slices.Contains(kinds, c.Kind):
		f.fail(name, "names the connector %q of the kind %s; this step needs %s", id, c.Kind, strings.Join(kinds, " or "))
		return Connector{}, false
	}
	return c, true
}
