package oidc_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/web/oidc"
)

func TestAUserSignsInAndOut(t *testing.T) {
	t.Parallel()
	s := newService(t)
	p := newSite(t, s)
	assert.Equal(t, session{Provider: "Company"}, p.session())

	at, _ := p.get("signin")
	assert.Equal(t, p.URL+"/ui/", at, "the address keeps no code")
	assert.Equal(t, session{Account: "acme", Role: "run", User: "ada", Accounts: []string{"acme"}, Provider: "Company"}, p.session())
	_, text := p.get("api/stages")
	assert.Equal(t, "Bearer acme-run acme", text, "the token of the role")
	refused, text := p.change(http.MethodPut, "api/limits")
	assert.Equal(t, http.StatusForbidden, refused)
	assert.Contains(t, text, "the session has the role run")

	_, text = p.change(http.MethodDelete, "session")
	var out struct{ Location string }
	require.NoError(t, json.Unmarshal([]byte(text), &out))
	end, err := url.Parse(out.Location)
	require.NoError(t, err)
	assert.Equal(t, s.URL+"/end", s.URL+end.Path)
	assert.Equal(t, p.URL+"/ui/", end.Query().Get("post_logout_redirect_uri"))
	assert.Equal(t, client, end.Query().Get("client_id"))
	assert.Len(t, strings.Split(end.Query().Get("id_token_hint"), "."), 3)
	assert.Empty(t, p.session().Account)
}

func TestAUserChoosesAnAccount(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.change = func(c map[string]any) { c["groups"] = "admins" }
	p := newSite(t, s)
	p.get("signin")
	assert.Equal(t, session{Account: "acme", Role: "operate", User: "ada", Accounts: []string{"acme", "zoo"}, Provider: "Company"}, p.session())
	p.get("signin?account=zoo")
	assert.Equal(t, "zoo", p.session().Account)
	assert.Equal(t, "read", p.session().Role)
	p.get("signin?account=bank")
	assert.Contains(t, p.session().Problem, "ada has no role in the account bank")
	assert.Equal(t, "zoo", p.session().Account, "the session stays")
	assert.Empty(t, p.session().Problem, "the reason is shown once")
}

func TestClaimsComeFromTheTokenOrTheUserInfo(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.change = func(c map[string]any) {
		delete(c, "groups")
		c["realm"] = map[string]any{"roles": []string{"builders"}}
	}
	s.info = map[string]any{"sub": "user-1", "groups": []string{"admins"}}
	deep := newSite(t, s, func(c *oidc.Config) { c.Claim = "realm.roles" })
	deep.get("signin")
	assert.Equal(t, "run", deep.session().Role)

	without := newSite(t, s)
	without.get("signin")
	assert.Contains(t, without.session().Problem, "Company sent no claim groups")

	s.meta["userinfo_endpoint"] = s.URL + "/userinfo"
	with := newSite(t, s)
	with.get("signin")
	assert.Equal(t, "operate", with.session().Role)

	s.mu.Lock()
	s.info["sub"] = "user-2"
	s.mu.Unlock()
	other := newSite(t, s)
	other.get("signin")
	assert.Contains(t, other.session().Problem, "the user info of another user")
}

// The service replaces its key while the page runs.
func TestANewKeyIsRead(t *testing.T) {
	t.Parallel()
	s := newService(t)
	p := newSite(t, s)
	p.get("signin")
	require.Equal(t, "acme", p.session().Account)
	p.change(http.MethodDelete, "session")
	s.rotate(t, "key-2")
	p.get("signin")
	assert.Equal(t, "acme", p.session().Account)
}

func TestForgedTokensAreRefused(t *testing.T) {
	t.Parallel()
	foreign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(map[string]any)
		sign   func(*service, []byte) string
		want   string
	}{
		"wrong nonce":             {change: func(c map[string]any) { c["nonce"] = "another" }, want: "its nonce belongs to another sign-in"},
		"no nonce":                {change: func(c map[string]any) { delete(c, "nonce") }, want: "its nonce belongs to another sign-in"},
		"wrong audience":          {change: func(c map[string]any) { c["aud"] = "another" }, want: "expected audience"},
		"more than one audience":  {change: func(c map[string]any) { c["aud"] = []string{client, "another"} }, want: "issued for another client"},
		"another party":           {change: func(c map[string]any) { c["azp"] = "another" }, want: "issued for another client"},
		"wrong issuer":            {change: func(c map[string]any) { c["iss"] = "https://login.example.test" }, want: "different provider"},
		"expired":                 {change: func(c map[string]any) { c["exp"] = time.Now().Add(-time.Minute).Unix() }, want: "expired"},
		"no expiry":               {change: func(c map[string]any) { delete(c, "exp") }, want: "expired"},
		"not valid yet":           {change: func(c map[string]any) { c["nbf"] = time.Now().Add(time.Hour).Unix() }, want: "before the nbf"},
		"no subject":              {change: func(c map[string]any) { c["groups"] = []string{"strangers"} }, want: "ada has no role: ask an operator of the manager for one; the values of the claim groups are: strangers"},
		"an object as the claim":  {change: func(c map[string]any) { c["groups"] = map[string]any{"builders": true} }, want: "has no role"},
		"too many values":         {change: func(c map[string]any) { c["groups"] = make([]string, 10_001) }, want: "more than 10000 values"},
		"key of another service":  {sign: func(s *service, b []byte) string { return signedBy(foreign, s.kid, b) }, want: "failed to verify"},
		"unknown key":             {sign: func(_ *service, b []byte) string { return signedBy(foreign, "key-9", b) }, want: "failed to verify"},
		"secret as the key":       {sign: func(s *service, b []byte) string { return signedBy([]byte(strings.Repeat(fakeSecret, 2)), s.kid, b) }, want: "sent an id token that is not valid"},
		"no signature (alg none)": {sign: func(_ *service, b []byte) string { return unsigned(b) }, want: "sent an id token that is not valid"},
		"no token":                {sign: func(*service, []byte) string { return "" }, want: "there is none"},
		"not a token":             {sign: func(*service, []byte) string { return "a.b" }, want: "sent an id token that is not valid"},
		"larger than any answer":  {sign: func(*service, []byte) string { return strings.Repeat("a", 2<<20) }, want: "refused the code"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.change = c.change
			if c.sign != nil {
				s.sign = func(b []byte) string { return c.sign(s, b) }
			}
			p := newSite(t, s)
			at, _ := p.get("signin")
			assert.Equal(t, p.URL+"/ui/", at)
			got := p.session()
			assert.Empty(t, got.Account)
			assert.Contains(t, got.Problem, c.want)
		})
	}
}

// unsigned returns a token without a signature.
func unsigned(claims []byte) string {
	e := base64.RawURLEncoding.EncodeToString
	return e([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + e(claims) + "."
}

func TestForgedAnswersAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(url.Values)
		want   string
	}{
		"wrong state":            {func(q url.Values) { q.Set("state", "another") }, "its state differs"},
		"no state":               {func(q url.Values) { q.Del("state") }, "its state differs"},
		"two states":             {func(q url.Values) { q.Add("state", q.Get("state")) }, "its state differs"},
		"an error without state": {func(q url.Values) { q.Del("state"); q.Set("error", "call 555-0100") }, "its state differs"},
		"another service":        {func(q url.Values) { q.Set("iss", "https://login.example.test") }, "its iss differs"},
		"no code":                {func(q url.Values) { q.Del("code") }, "has no code"},
		"a long code":            {func(q url.Values) { q.Set("code", strings.Repeat("x", 5000)) }, "has no code"},
		"an unknown code":        {func(q url.Values) { q.Set("code", "x") }, "invalid_grant the code is not valid"},
		"a refusal": {func(q url.Values) {
			q.Set("error", "access_denied")
			q.Set("error_description", strings.Repeat("<b> ", 1000))
		}, "Company refused the sign-in: access_denied <b> <b>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			p := newSite(t, s)
			back := p.stop("signin", p.URL+"/ui/signin/callback")
			u, err := url.Parse(back)
			require.NoError(t, err)
			q := u.Query()
			c.change(q)
			u.RawQuery = q.Encode()
			p.get(u.String())
			got := p.session()
			assert.Empty(t, got.Account)
			assert.Contains(t, got.Problem, c.want)
			assert.Less(t, len(got.Problem), 600)

			p.get(back) // the right answer comes too late
			assert.Empty(t, p.session().Account)
		})
	}
}

// An answer works once, and only in the browser in which the sign-in began.
func TestAnAnswerWorksOnce(t *testing.T) {
	t.Parallel()
	s := newService(t)
	p := newSite(t, s)
	back := p.stop("signin", p.URL+"/ui/signin/callback")
	victim := newSite(t, s)
	at, err := url.Parse(back)
	require.NoError(t, err)
	victim.get("signin/callback?" + at.RawQuery)
	assert.Contains(t, victim.session().Problem, "began in another browser")

	cookies := p.browser.Jar.Cookies(at)
	require.Len(t, cookies, 1)
	p.get(back)
	require.Equal(t, "acme", p.session().Account)
	p.change(http.MethodDelete, "session")
	p.get(back)
	assert.Contains(t, p.session().Problem, "sign in again")
	p.browser.Jar.SetCookies(at, cookies) // a thief has the cookie too
	p.get(back)
	assert.Contains(t, p.session().Problem, "invalid_grant")
	assert.Empty(t, p.session().Account)

	session := &http.Cookie{Name: "dlite_page", Value: cookies[0].Value, Path: "/ui/"}
	p.browser.Jar.SetCookies(at, []*http.Cookie{session})
	assert.Empty(t, p.session().Account, "the cookie of a sign-in is no session")
}

func TestABrokenServiceIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path   string
		handle func(release <-chan struct{}) http.HandlerFunc
		want   string
	}{
		"hangs at the discovery": {"/.well-known/openid-configuration", hang, "Company cannot be reached"},
		"hangs at the token":     {"/token", hang, "Company refused the code"},
		"hangs at the keys":      {"/keys", hang, "sent an id token that is not valid"},
		"redirects with the secret": {"/token", func(<-chan struct{}) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://evil.example.test/", http.StatusTemporaryRedirect)
			}
		}, "refused the code"},
		"never ends": {"/.well-known/openid-configuration", func(<-chan struct{}) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				for {
					if _, err := w.Write(make([]byte, 64<<10)); err != nil {
						return
					}
				}
			}
		}, "larger than"},
		"has no keys": {"/keys", func(<-chan struct{}) http.HandlerFunc { return http.NotFound }, "fetching keys"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			release := make(chan struct{})
			t.Cleanup(func() { close(release) })
			s.mu.Lock()
			s.handle[c.path] = c.handle(release)
			s.mu.Unlock()
			p := newSite(t, s, func(c *oidc.Config) { c.Timeout = 300 * time.Millisecond })
			p.get("signin")
			assert.Contains(t, p.session().Problem, c.want)
			assert.Empty(t, p.session().Account)
		})
	}
}

func hang(release <-chan struct{}) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
}

// A service that names addresses without TLS, or another issuer, is refused.
func TestAddressesOfTheServiceAreChecked(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"token_endpoint": "http://evil.example.test/token", "authorization_endpoint": "javascript:alert(1)", "jwks_uri": "",
		"end_session_endpoint": "javascript:alert(1)", "userinfo_endpoint": "http://evil.example.test/", "issuer": "https://evil.example.test",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.meta[name] = value
			p := newSite(t, s)
			p.get("signin")
			assert.Contains(t, p.session().Problem, "Company cannot be reached")
		})
	}
}

func TestConfigurationsAreChecked(t *testing.T) {
	t.Parallel()
	good := func() oidc.Config {
		return oidc.Config{Issuer: "https://login.example.test", ClientID: client, Page: "https://ci.example.test/ui/", Roles: func([]string) map[string]api.Role { return nil }}
	}
	_, err := oidc.New(good())
	require.NoError(t, err)
	for want, change := range map[string]func(*oidc.Config){
		"ClientID is missing":                         func(c *oidc.Config) { c.ClientID = "" },
		"Roles is missing":                            func(c *oidc.Config) { c.Roles = nil },
		"Scopes must contain openid":                  func(c *oidc.Config) { c.Scopes = []string{"email"} },
		`Issuer is "http://login.example.test"; it m`: func(c *oidc.Config) { c.Issuer = "http://login.example.test" },
		`Issuer is "http://127.example.test"; it mus`: func(c *oidc.Config) { c.Issuer = "http://127.example.test" },
		`Page is ""; it must be an address`:           func(c *oidc.Config) { c.Page = "" },
	} {
		c := good()
		change(&c)
		_, err := oidc.New(c)
		require.ErrorContains(t, err, want)
	}
}
