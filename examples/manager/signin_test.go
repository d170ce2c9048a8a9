package main

import (
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

func TestRolesOfGroups(t *testing.T) {
	t.Parallel()
	all, err := parseGrants("builders=demo:run, cn=ops=demo:operate,*=demo:read,builders=other:read,cn=ci%2Cdc=example=other:operate")
	require.NoError(t, err)
	assert.Equal(t, map[string]api.Role{"demo": api.RoleRead}, all.of(nil))
	assert.Equal(t, map[string]api.Role{"demo": api.RoleRun, "other": api.RoleRead}, all.of([]string{"builders", "unknown"}))
	assert.Equal(t, map[string]api.Role{"demo": api.RoleOperate, "other": api.RoleRead}, all.of([]string{"cn=ops", "builders"}))
	assert.Equal(t, map[string]api.Role{"demo": api.RoleRead, "other": api.RoleOperate}, all.of([]string{"cn=ci,dc=example"}), "a group with a comma")
	for text, want := range map[string]string{
		"builders": "group=account:role", "=demo:run": "group=account:role", "builders=demo": "group=account:role",
		"builders=demo:root": "the role must be read, run or operate", "a=demo:read,a=demo:run": "a second role",
	} {
		_, err := parseGrants(text)
		require.ErrorContains(t, err, want, text)
	}
	for want, o := range map[string]signInOptions{
		"OIDC_ISSUER is missing":    {Roles: "*=demo:read"},
		"OIDC_CLIENT_ID is missing": {Issuer: "https://login.example.test"},
		"OIDC_ROLES is missing":     {Issuer: "https://login.example.test", ClientID: "page"},
		`the account "bank", which`: {Issuer: "https://login.example.test", ClientID: "page", Roles: "*=bank:read"},
		"PAGE_SESSION":              {Session: -1},
	} {
		require.ErrorContains(t, o.check(map[string]string{demo: fakeSecret}), want)
	}
}

func FuzzParseGrants(f *testing.F) {
	f.Add("builders=demo:run,*=demo:read")
	f.Add("a=b=c:d:read")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseGrants(text)
		if err != nil {
			return
		}
		for group := range all {
			for account, role := range all.of([]string{group}) {
				if account == "" || !role.Valid() {
					t.Fatalf("%q: account %q has the role %q", text, account, role)
				}
			}
		}
	})
}

// user is a user with a browser.
type user struct {
	*testing.T
	page    string
	browser *http.Client
}

func newUser(t *testing.T, page string) *user {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &user{t, page, &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// reply is the answer at the address after all redirects.
type reply struct {
	at     *url.URL
	status int
	header http.Header
	text   string
}

// do makes a call and follows its redirects.
func (u *user) do(method, address string, form url.Values) reply {
	u.Helper()
	if !strings.Contains(address, "://") {
		address = u.page + address
	}
	r, err := http.NewRequestWithContext(u.Context(), method, address, strings.NewReader(form.Encode()))
	require.NoError(u, err)
	r.Header.Set("Dlite-Page", "1")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := u.browser.Do(r)
	require.NoError(u, err)
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	require.NoError(u, err)
	return reply{answer.Request.URL, answer.StatusCode, answer.Header, string(b)}
}

// signIn signs the user in at the service, and returns the session that the page shows.
func (u *user) signIn(name string) map[string]any {
	u.Helper()
	service := u.do(http.MethodGet, "signin", nil) // its redirects end at the form of the service
	id := regexp.MustCompile(`name="id" value="([^"]*)"`).FindStringSubmatch(service.text)
	require.NotEmpty(u, id, service.text)
	at := service.at.Scheme + "://" + service.at.Host + "/login/username"
	u.do(http.MethodPost, at, url.Values{"id": {html.UnescapeString(id[1])}, "username": {name}, "password": {testbed.OIDCPassword}})
	return u.session()
}

func (u *user) session() map[string]any {
	u.Helper()
	text := u.do(http.MethodGet, "session", nil).text
	var out map[string]any
	require.NoError(u, json.Unmarshal([]byte(text), &out), text)
	return out
}

// Users sign in at a real service. The manager enforces their roles.
func TestUsersSignInWithOpenIDConnect(t *testing.T) {
	t.Parallel()
	var manager *url.URL
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(manager) },
		Transport: &http.Transport{DisableKeepAlives: true},
	})
	t.Cleanup(proxy.Close)
	page := proxy.URL + pagePath + "/"
	issuer := testbed.OIDC(t, page)
	c := &serverCommand{
		storeOptions: storeOptions{Store: "memory", OIDCSecret: testbed.OIDCSecret, PipelinesDatabase: pipelinesOff},
		SignIn: signInOptions{
			Issuer: issuer, ClientID: testbed.OIDCClient, Name: "Company", PageURL: page, Session: time.Hour,
			Roles: "builders=demo:run,operators=demo:operate,operators=other:read",
		},
	}
	p := start(t, c, map[string]string{demo: fakeSecret, "other": otherSecret}, nil)
	p.url, _, _ = strings.Cut(p.url, "\n")
	var err error
	manager, err = url.Parse(p.url)
	require.NoError(t, err)

	ada := newUser(t, page)
	s := ada.signIn("ada")
	assert.Equal(t, []any{"demo", "run", "ada"}, []any{s["account"], s["role"], s["user"]}, "%v", s)
	answer := ada.do(http.MethodGet, "api/stages", nil)
	assert.Equal(t, http.StatusOK, answer.status, answer.text)
	assert.Equal(t, "run", answer.header.Get(api.RoleHeader), "the manager knows the role")
	answer = ada.do(http.MethodPost, "api/pause", nil)
	assert.Equal(t, http.StatusForbidden, answer.status, answer.text)

	answer = ada.do(http.MethodDelete, "session", nil)
	require.Equal(t, http.StatusOK, answer.status, answer.text)
	var out struct{ Location string }
	require.NoError(t, json.Unmarshal([]byte(answer.text), &out))
	at := ada.do(http.MethodGet, out.Location, nil).at
	assert.Equal(t, page, at.String(), "the service knows the page and sends the user back")
	assert.Nil(t, ada.session()["account"])

	grace := newUser(t, page)
	s = grace.signIn("grace")
	assert.Equal(t, []any{"demo", "operate", []any{"demo", "other"}}, []any{s["account"], s["role"], s["accounts"]})
	answer = grace.do(http.MethodPost, "api/pause", nil)
	assert.Equal(t, http.StatusNoContent, answer.status, answer.text)

	eve := newUser(t, page)
	s = eve.signIn("eve")
	assert.Nil(t, s["account"])
	assert.Contains(t, s["problem"], "eve has no role")
}
