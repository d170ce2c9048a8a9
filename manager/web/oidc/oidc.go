// Package oidc signs users of the page in by OpenID Connect: with the authorization code flow, PKCE, a state and a nonce.
//
//	provider, err := oidc.New(oidc.Config{
//		Issuer: "https://login.example.com", ClientID: "dlite", ClientSecret: secret, Page: "https://ci.example.com/ui/",
//		Roles: func(groups []string) map[string]api.Role { return roles },
//	})
//	page := web.New(web.Config{API: routes, Logs: logs, Provider: provider, Token: m.Token})
//
// The service must know the redirect address signin/callback below Page, and Page itself as the address after a
// sign-out. Start reading at oidc.go: New, Begin and Finish follow a sign-in.
package oidc

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/web"
)

// Config configures the provider. Issuer, ClientID, Page and Roles are required.
type Config struct {
	// Issuer is the address of the service. It begins with https, unless the service is on this machine.
	Issuer string
	// ClientID and ClientSecret are the credentials that the service has given to the page. A service that knows the page as a
	// public client gives no secret.
	ClientID, ClientSecret string
	// Page is the address of the page as users open it, such as https://ci.example.com/ui/.
	Page string
	// Name is the name of the service for users. Defaults to "single sign-on".
	Name string
	// Scopes are the scopes that the page requests. Defaults to openid, profile and email. Services often need one more for Claim.
	Scopes []string
	// Claim is the claim that Roles receives: a text or a list of texts. Dots lead into objects, as in
	// "realm_access.roles". A claim that the id token lacks is read from the user info of the service. Defaults to "groups".
	Claim string
	// Roles returns the roles of a user by account. Values are the values of Claim, from a user whom the service has
	// signed in. A user without a role cannot sign in.
	Roles func(values []string) map[string]api.Role
	// Timeout bounds each call of the service. 0 means 10 seconds.
	Timeout time.Duration
}

// provider is a service that speaks OpenID Connect.
type provider struct {
	cfg      Config
	callback string
	found    discovery
}

// New returns a provider for [web.Config]. It makes no call: the service may start later than the manager.
func New(cfg Config) (web.Provider, error) {
	cfg.Name, cfg.Claim = cmp.Or(cfg.Name, "single sign-on"), cmp.Or(cfg.Claim, "groups")
	if len(cfg.Scopes) == 0 {
		cfg.Scopes = []string{oidc.ScopeOpenID, "profile", "email"}
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	switch {
	case cfg.ClientID == "":
		return nil, errors.New("oidc: ClientID is missing: register the page at the service")
	case cfg.Roles == nil:
		return nil, errors.New("oidc: Roles is missing")
	case !slices.Contains(cfg.Scopes, oidc.ScopeOpenID):
		return nil, errors.New("oidc: Scopes must contain openid")
	}
	if err := checkAddress("Issuer", cfg.Issuer); err != nil {
		return nil, err
	}
	if err := checkAddress("Page", cfg.Page); err != nil {
		return nil, err
	}
	cfg.Page = strings.TrimSuffix(cfg.Page, "/") + "/"
	p := &provider{cfg: cfg, callback: cfg.Page + "signin/callback"}
	p.found.issuer, p.found.client = cfg.Issuer, newClient(cfg.Timeout)
	return p, nil
}

// checkAddress checks an address of the configuration or of the service. Without TLS, other machines could read and
// change the messages, so plain HTTP is for this machine only.
func checkAddress(what, text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "":
		return fmt.Errorf("oidc: %s is %q; it must be an address such as https://login.example.com", what, text)
	case u.Scheme == "https", u.Scheme == "http" && local(u.Hostname()):
		return nil
	}
	return fmt.Errorf("oidc: %s is %q; it must begin with https://", what, text)
}

func local(host string) bool {
	ip := net.ParseIP(host) // nil for a name such as 127.example.com
	return host == "localhost" || ip.IsLoopback()
}

func (p *provider) Name() string { return p.cfg.Name }

// flow is what Finish needs of a sign-in.
type flow struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
}

// Begin returns the address where the user signs in.
func (p *provider) Begin(ctx context.Context) (string, []byte, error) {
	s, err := p.found.service(ctx)
	if err != nil {
		return "", nil, p.failed("cannot be reached", err)
	}
	f := flow{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	b, err := json.Marshal(f)
	if err != nil {
		return "", nil, err
	}
	return p.exchange(s).AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), b, nil
}

func (p *provider) exchange(s *service) *oauth2.Config {
	// Without a style, the library repeats a call that has failed in the other style, but a code works once.
	endpoint := s.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if p.cfg.ClientSecret == "" || len(s.authMethods) > 0 && !slices.Contains(s.authMethods, "client_secret_basic") {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, Endpoint: endpoint, RedirectURL: p.callback, Scopes: p.cfg.Scopes,
	}
}

// maxCode bounds the code that the service sends by the browser.
const maxCode = 4 << 10

// Finish checks the answer of the service and returns the user.
func (p *provider) Finish(ctx context.Context, data []byte, answer url.Values) (web.User, error) {
	var f flow
	if err := json.Unmarshal(data, &f); err != nil || f.State == "" {
		return web.User{}, errors.New("the sign-in is unknown: sign in again")
	}
	// The state comes first: another site must not even make the page show an error of its choice.
	if !same(single(answer, "state"), f.State) {
		return web.User{}, errors.New("the answer belongs to another sign-in (its state differs): sign in again")
	}
	s, err := p.found.service(ctx)
	if err != nil {
		return web.User{}, p.failed("cannot be reached", err)
	}
	issuer, named := single(answer, "iss"), answer.Has("iss")
	if (named || s.namesItself) && issuer != p.cfg.Issuer {
		return web.User{}, errors.New("the answer comes from another service (its iss differs): sign in again")
	}
	if refused := single(answer, "error"); refused != "" {
		return web.User{}, fmt.Errorf("%s refused the sign-in: %s", p.cfg.Name, brief(refused+" "+single(answer, "error_description")))
	}
	code := single(answer, "code")
	if code == "" || len(code) > maxCode {
		return web.User{}, errors.New("the answer has no code: sign in again")
	}
	ctx = oidc.ClientContext(ctx, p.found.client)
	token, err := p.exchange(s).Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return web.User{}, p.failed("refused the code", err)
	}
	id, raw, err := p.verify(ctx, s, token, f.Nonce)
	if err != nil {
		return web.User{}, p.failed("sent an id token that is not valid", err)
	}
	return p.user(ctx, s, token, id, raw)
}

// verify checks the id token of an answer.
func (p *provider) verify(ctx context.Context, s *service, token *oauth2.Token, nonce string) (*oidc.IDToken, string, error) {
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return nil, "", errors.New("there is none: the scopes must contain openid")
	}
	id, err := s.Verifier(&oidc.Config{ClientID: p.cfg.ClientID}).Verify(ctx, raw)
	if err != nil {
		return nil, "", err
	}
	if !same(id.Nonce, nonce) {
		return nil, "", errors.New("its nonce belongs to another sign-in")
	}
	var c struct {
		Party string `json:"azp"`
	}
	if err := id.Claims(&c); err != nil {
		return nil, "", err
	}
	if (len(id.Audience) > 1 || c.Party != "") && c.Party != p.cfg.ClientID {
		return nil, "", errors.New("it was issued for another client (azp)")
	}
	return id, raw, nil
}

// SignOut returns the address of the service that ends the user's session there.
func (p *provider) SignOut(ctx context.Context, hint string) string {
	s, err := p.found.service(ctx)
	if err != nil || s.endSession == "" {
		return "" // the session of the page has ended anyway
	}
	u, err := url.Parse(s.endSession)
	if err != nil {
		return ""
	}
	q := u.Query()
	q.Set("client_id", p.cfg.ClientID)
	q.Set("post_logout_redirect_uri", p.cfg.Page)
	if hint != "" {
		q.Set("id_token_hint", hint)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// failed names the service in an error that its call has caused.
func (p *provider) failed(what string, err error) error {
	var answer *oauth2.RetrieveError
	if errors.As(err, &answer) && answer.ErrorCode != "" {
		err = errors.New(brief(answer.ErrorCode + " " + answer.ErrorDescription))
	}
	return fmt.Errorf("%s %s (%s): sign in again, or ask an operator of the manager", p.cfg.Name, what, brief(err.Error()))
}

// brief bounds a text that the service has sent.
func brief(s string) string {
	const most = 300
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// single returns the value of a parameter that is there once.
func single(q url.Values, name string) string {
	if len(q[name]) != 1 {
		return ""
	}
	return q[name][0]
}

// same compares two texts, of which the second is not empty, in a time that does not depend on them.
func same(got, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

// newClient returns a client for calls of the service. It follows no redirect, because a call may carry the secret.
func newClient(timeout time.Duration) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	transport.DisableKeepAlives = true                           // calls are rare
	transport.MaxResponseHeaderBytes = maxAnswer
	return &http.Client{
		Timeout: timeout, Transport: bounded{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
