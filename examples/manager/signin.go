package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/delegate-io/dlite/examples/internal/serving"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/web"
	"github.com/delegate-io/dlite/manager/web/oidc"
)

// signInOptions are the settings of sign-ins by OpenID Connect. The secret of the client is in storeOptions.
type signInOptions struct {
	Issuer, ClientID, Name string
	Scopes, Claim, Roles   string
	PageURL                string
	Session                time.Duration
}

func (o *signInOptions) register(fs *flag.FlagSet) {
	fs.DurationVar(&o.Session, "page-session", 12*time.Hour, "how long a session of the page lasts; a user who loses a role keeps it until the session ends")
	fs.StringVar(&o.PageURL, "page-url", "", "address of the page as users open it, for sign-ins by OpenID Connect (default: "+pagePath+"/ at --public-url)")
	fs.StringVar(&o.Issuer, "oidc-issuer", "", "address of a service that signs users of the page in by OpenID Connect; OIDC_CLIENT_SECRET is the secret of the page there (docs/page.md)")
	fs.StringVar(&o.ClientID, "oidc-client-id", "", "id of the page at that service")
	fs.StringVar(&o.Name, "oidc-name", "single sign-on", "name of that service on the page")
	fs.StringVar(&o.Scopes, "oidc-scopes", "openid,profile,email", "comma-separated scopes that the page asks for")
	fs.StringVar(&o.Claim, "oidc-claim", "groups", "claim with the groups of a user; dots lead into objects, as in realm_access.roles")
	fs.StringVar(&o.Roles, "oidc-roles", "", "roles of groups, such as builders=demo:run,operators=demo:operate,*=demo:read; the roles are read, run and operate, and * is every user")
}

// grants are the roles of groups: by group, then by account.
type grants map[string]map[string]api.Role

// everyone is the group of all users.
const everyone = "*"

// parseGrants reads "group=account:role,...".
func parseGrants(text string) (grants, error) {
	all := grants{}
	for _, part := range serving.List(text) {
		at := strings.LastIndex(part, "=") // the name of a group may contain one
		if at <= 0 {
			return nil, fmt.Errorf("OIDC_ROLES: %q is not of the form group=account:role", part)
		}
		group, of := strings.TrimSpace(part[:at]), part[at+1:]
		group = strings.NewReplacer("%2C", ",", "%2c", ",").Replace(group) // a comma ends a part
		colon := strings.LastIndex(of, ":")
		if colon <= 0 || group == "" {
			return nil, fmt.Errorf("OIDC_ROLES: %q is not of the form group=account:role", part)
		}
		account, role := strings.TrimSpace(of[:colon]), api.Role(strings.TrimSpace(of[colon+1:]))
		if !role.Valid() {
			return nil, fmt.Errorf("OIDC_ROLES: %q: the role must be read, run or operate", part)
		}
		if all[group] == nil {
			all[group] = map[string]api.Role{}
		}
		if _, twice := all[group][account]; twice {
			return nil, fmt.Errorf("OIDC_ROLES: %q gives the group a second role in the account", part)
		}
		all[group][account] = role
	}
	return all, nil
}

// of returns the roles of a user with these groups. The role that permits most wins.
func (g grants) of(groups []string) map[string]api.Role {
	roles := map[string]api.Role{}
	for _, group := range append([]string{everyone}, groups...) {
		for account, role := range g[group] {
			if roles[account].Below(role) {
				roles[account] = role
			}
		}
	}
	return roles
}

// check checks the settings. A mistake must not leave the page without a way to sign in.
func (o *signInOptions) check(accounts map[string]string) error {
	switch {
	case o.Session < 0:
		return errors.New("PAGE_SESSION: it must not be negative; 0 means 12h")
	case o.Issuer == "" && (o.ClientID != "" || o.Roles != ""):
		return errors.New("OIDC_ISSUER is missing: set it to the address of the service, or remove the other settings that begin with OIDC_")
	case o.Issuer == "":
		return nil
	case o.ClientID == "":
		return errors.New("OIDC_CLIENT_ID is missing: the service shows it after you have registered the page there")
	}
	all, err := parseGrants(o.Roles)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("OIDC_ROLES is missing: without it no user has a role; for example *=demo:read")
	}
	for group, roles := range all {
		for account := range roles {
			if _, known := accounts[account]; !known {
				return fmt.Errorf("OIDC_ROLES: group %q has a role in the account %q, which ACCOUNTS does not list", group, account)
			}
		}
	}
	return nil
}

// provider returns the service that signs users in, or nil if the settings name none. Page is the address of the page.
func (o *signInOptions) provider(secret, page string) (web.Provider, error) {
	if o.Issuer == "" {
		return nil, nil
	}
	all, err := parseGrants(o.Roles)
	if err != nil {
		return nil, err
	}
	p, err := oidc.New(oidc.Config{
		Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: secret, Page: page,
		Name: o.Name, Scopes: serving.List(o.Scopes), Claim: o.Claim, Roles: all.of,
	})
	if err != nil {
		return nil, fmt.Errorf("OIDC_ISSUER, PAGE_URL: %w", err)
	}
	return p, nil
}
