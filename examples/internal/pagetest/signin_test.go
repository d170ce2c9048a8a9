package pagetest

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/web"
	"github.com/delegate-io/dlite/manager/web/oidc"
)

// A user signs in and out at a service. What the role does not permit is disabled and says why.
func TestAUserSignsInAtAService(t *testing.T) {
	m := site(t)
	at, err := url.Parse(m.URL)
	require.NoError(t, err)
	behind := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }, Transport: &http.Transport{DisableKeepAlives: true}}
	var page http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { page.ServeHTTP(w, r) }))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	base := server.URL + "/ui/"
	provider, err := oidc.New(oidc.Config{
		Issuer: testbed.OIDC(t, base), ClientID: testbed.OIDCClient, ClientSecret: testbed.OIDCSecret, Page: base, Name: "Company",
		Roles: func(groups []string) map[string]api.Role {
			roles := map[string]api.Role{}
			for _, g := range groups {
				if g == "builders" {
					roles[machine.Account] = api.RoleRun
				}
			}
			return roles
		},
	})
	require.NoError(t, err)
	page = http.StripPrefix("/ui", web.New(web.Config{API: behind, Logs: behind, Provider: provider, Token: m.RoleToken}))

	p := open(t, base)
	p.expect("favicon.ico")
	p.shows("h1", "Sign in")
	check(p, "sign-in with a provider", false)
	p.visit("#/delegates")
	enter := func(name string) {
		p.press("a", "Sign in with Company")
		p.until(`document.querySelector('#username')`)
		p.run(act(`document.querySelector('#username').focus()`), chromedp.KeyEvent(name), act(`document.querySelector('#password').focus()`),
			chromedp.KeyEvent(testbed.OIDCPassword), act(`document.querySelector('button').click()`))
	}
	enter("eve")
	p.shows("[role=alert]", "eve has no role")
	enter("ada")
	p.shows("h1", "Delegates")
	p.shows(".who", "ada · "+machine.Account+" (start, abort and retry)")
	assert.Equal(t, base+"#/delegates", value[string](p, `location.href`), "the place stays, the code does not")
	const drain = `document.querySelector('tbody button')`
	p.until(drain)
	assert.Equal(t, "true", value[string](p, drain+`.getAttribute('aria-disabled')`))
	assert.Contains(t, value[string](p, drain+`.title`), "Sign in with a role that may do everything")
	p.run(act(drain + `.click()`))
	check(p, "disabled buttons", true)
	assert.Equal(t, "Drain", value[string](p, drain+`.innerText`), "the click did nothing")

	p.press("button", "Sign out")
	p.shows("a", "Sign in with Company")
	assert.Equal(t, base, value[string](p, `location.href.split('#')[0]`))
	token, err := m.RoleToken(machine.Account, api.RoleRead, time.Hour)
	require.NoError(t, err)
	p.enter("Account", machine.Account)
	p.enter("Token", token)
	p.press("button", "Sign in")
	p.shows(".who", machine.Account+" (only look)")
}
