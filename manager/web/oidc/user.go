package oidc

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/delegate-io/dlite/manager/web"
)

const (
	maxName = 256
	// maxValues bounds the values of the claim.
	maxValues = 10_000
)

// user returns the user of an id token.
func (p *provider) user(ctx context.Context, s *service, token *oauth2.Token, id *oidc.IDToken, raw string) (web.User, error) {
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return web.User{}, p.failed("sent an id token that cannot be read", err)
	}
	values, there := valuesOf(claims, p.cfg.Claim)
	if !there && s.userInfo {
		info, err := s.UserInfo(ctx, oauth2.StaticTokenSource(token))
		if err != nil {
			return web.User{}, p.failed("sent no user info", err)
		}
		if info.Subject != id.Subject {
			return web.User{}, p.failed("sent the user info of another user", fmt.Errorf("sub is %q", info.Subject))
		}
		more := map[string]any{}
		if err := info.Claims(&more); err != nil {
			return web.User{}, p.failed("sent user info that cannot be read", err)
		}
		values, there = valuesOf(more, p.cfg.Claim)
		for name, value := range more {
			if _, known := claims[name]; !known {
				claims[name] = value
			}
		}
	}
	if len(values) > maxValues {
		return web.User{}, fmt.Errorf("the claim %s has more than %d values", p.cfg.Claim, maxValues)
	}
	user := web.User{Name: nameOf(claims), Roles: p.cfg.Roles(values), Hint: raw}
	switch {
	case len(user.Roles) > 0:
		return user, nil
	case !there:
		return user, fmt.Errorf("%s has no role: %s sent no claim %s; ask an operator of the manager to add its scope or to name another claim", user.Name, p.cfg.Name, p.cfg.Claim)
	}
	return user, fmt.Errorf("%s has no role: ask an operator of the manager for one; the values of the claim %s are: %s", user.Name, p.cfg.Claim, brief(strings.Join(values, ", ")))
}

// nameOf returns the name of a user that people know best.
func nameOf(claims map[string]any) string {
	text := func(name string) string { s, _ := claims[name].(string); return strings.TrimSpace(s) }
	name := cmp.Or(text("preferred_username"), text("email"), text("name"), text("sub"))
	return strings.ToValidUTF8(name[:min(len(name), maxName)], "")
}

// valuesOf returns the texts of a claim, and whether the claim is there. A name with dots is the name of a claim, or else
// a path.
func valuesOf(claims map[string]any, name string) ([]string, bool) {
	found, there := claims[name]
	if !there {
		first, rest, deeper := strings.Cut(name, ".")
		inner, isObject := claims[first].(map[string]any)
		if !deeper || !isObject {
			return nil, false
		}
		return valuesOf(inner, rest)
	}
	switch v := found.(type) {
	case string:
		return []string{v}, true
	case []any:
		var values []string
		for _, one := range v {
			if s, ok := one.(string); ok {
				values = append(values, s)
			}
		}
		return values, true
	}
	return nil, true
}
