package steps

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/delegate-io/dlite/internal/source"
)

// SourceAccess returns the address of a source below a connector, and its credentials with references that a delegate
// resolves. Without a connector, the name is the address and there are no credentials. The credentials of a connector
// are for its host only.
func (t *Table) SourceAccess(kind, connector, name string) (address string, auth *source.Auth, err error) {
	if connector == "" {
		return name, nil, nil
	}
	c, ok := t.connectors[connector]
	if !ok {
		c, ok = t.connectors[connector[strings.LastIndex(connector, ".")+1:]]
	}
	switch {
	case !ok:
		return "", nil, fmt.Errorf("names the connector %q, which the settings of the pipeline service do not have", connector)
	case c.Kind != kind:
		return "", nil, fmt.Errorf("names the connector %q of the kind %s: the kind %s is needed", connector, c.Kind, kind)
	}
	address = name
	if kind == GitConnector && !strings.Contains(name, "://") {
		address = repositoryURL(c.URL, name)
	} else if !SameHost(c.URL, name) {
		return "", nil, fmt.Errorf("names the connector %q, whose credentials are for another host: use a repository of its host", connector)
	}
	if c.user() == "" && c.PasswordSecret == "" && c.KeySecret == "" {
		return address, nil, nil
	}
	access := source.Auth{Username: c.user(), Password: secretRef(c.PasswordSecret)}
	if kind == GitConnector {
		access.Key = secretRef(c.KeySecret)
	}
	for _, text := range []*string{&access.Username, &access.Password, &access.Key} {
		*text = string(t.resolvable([]byte(*text)))
	}
	return address, &access, nil
}

// SameHost reports whether the credentials of a connector are for a repository. An address without a host is Docker Hub.
func SameHost(connector, repository string) bool {
	return hostOf(connector) == hostOf(repository)
}

func hostOf(address string) string {
	const hub = "index.docker.io"
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		if u.Scheme == "ssh" || u.Scheme == "https" || u.Scheme == "http" {
			u.Host = u.Hostname() + portOf(u)
		}
		address = u.Host
	} else if user, rest, ok := strings.Cut(address, "@"); ok && !strings.Contains(user, "/") { // user@host:path
		address, _, _ = strings.Cut(rest, ":")
	}
	host, _, below := strings.Cut(address, "/")
	if address == "" || below && !strings.ContainsAny(host, ".:") && host != "localhost" || !below && !strings.Contains(host, ".") && !strings.Contains(host, ":") || host == "docker.io" || host == "registry-1.docker.io" {
		return hub
	}
	return strings.ToLower(host)
}

// portOf returns the port of an address, if it is not the usual one of its scheme.
func portOf(u *url.URL) string {
	port := u.Port()
	if port == "" || port == map[string]string{"https": "443", "http": "80", "ssh": "22"}[u.Scheme] {
		return ""
	}
	return ":" + port
}
