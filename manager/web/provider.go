package web

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/delegate-io/dlite/manager/api"
)

// Provider signs users in with their accounts at another service. Package oidc has one for OpenID Connect. Its methods
// are safe for concurrent use and bound the time of their calls.
type Provider interface {
	// Name returns the name of the service for users.
	Name() string
	// Begin returns the address where the user signs in, and data for Finish. The page keeps the data in an encrypted cookie.
	Begin(ctx context.Context) (address string, flow []byte, err error)
	// Finish returns the user. Answer is the query with which the service sent the user back to signin/callback below
	// the page.
	Finish(ctx context.Context, flow []byte, answer url.Values) (User, error)
	// SignOut returns the address where the user signs out of the service, or an empty string if there is none. Hint is
	// User.Hint, or empty.
	SignOut(ctx context.Context, hint string) string
}

// User is a user that a [Provider] has signed in.
type User struct {
	// Name is shown on the page, and stored with the runs that the user starts.
	Name string
	// Roles has the role in each account. It is not empty.
	Roles map[string]api.Role
	// Hint is for [Provider].SignOut. The page drops a hint that does not fit into a cookie.
	Hint string
}

const (
	flowCookie    = "dlite_page_signin"
	problemCookie = "dlite_page_problem"
	// flowLifetime is the time that a user has to sign in at the provider.
	flowLifetime = 10 * time.Minute
	// maxSession bounds the content of a session's cookie: a browser drops cookies above 4 KiB.
	maxSession = 2900
	// maxProblem bounds the text of a failed sign-in.
	maxProblem = 1000
)

// flow is a sign-in at the provider that has not ended.
type flow struct {
	Account string    `json:"a"`
	Data    []byte    `json:"d"`
	Expires time.Time `json:"e"`
}

// problem is the reason of a failed sign-in, until the page shows it.
type problem struct {
	Text    string    `json:"t"`
	Expires time.Time `json:"e"`
}

// beginSignIn sends the user to the provider. The account of the query is the one that the user wants.
func (p *page) beginSignIn(w http.ResponseWriter, r *http.Request) {
	account := r.URL.Query().Get("account")
	if len(account) > maxAccount {
		p.failSignIn(w, r, "signin", "./", "account must have at most 256 bytes")
		return
	}
	address, data, err := p.cfg.Provider.Begin(r.Context())
	if err != nil {
		p.failSignIn(w, r, "signin", "./", err.Error())
		return
	}
	sealed := p.cookies.seal(flowCookie, flow{account, data, time.Now().Add(flowLifetime)})
	setCookie(w, r, cookie{flowCookie, base(r, "signin") + "signin", sealed, flowLifetime, http.SameSiteLaxMode}) // the provider is another site
	redirect(w, address)
}

// finishSignIn receives the user from the provider.
func (p *page) finishSignIn(w http.ResponseWriter, r *http.Request) {
	const here = "signin/callback"
	setCookie(w, r, cookie{flowCookie, base(r, here) + "signin", "", -time.Second, http.SameSiteLaxMode}) // a cookie is for one answer
	var f flow
	if !p.cookies.open(r, flowCookie, &f) || time.Now().After(f.Expires) {
		p.failSignIn(w, r, here, "../", "the sign-in has expired, or began in another browser or at another address of this page: sign in again")
		return
	}
	user, err := p.cfg.Provider.Finish(r.Context(), f.Data, r.URL.Query())
	if err != nil {
		p.failSignIn(w, r, here, "../", err.Error())
		return
	}
	accounts := slices.Sorted(maps.Keys(user.Roles))
	account := f.Account
	switch {
	case len(accounts) == 0:
		p.failSignIn(w, r, here, "../", user.Name+" has no role in any account: ask an operator of the manager for one")
		return
	case account == "":
		account = accounts[0]
	case user.Roles[account] == "":
		p.failSignIn(w, r, here, "../", user.Name+" has no role in the account "+account+": ask an operator of the manager for one")
		return
	}
	role := user.Roles[account]
	token, err := p.cfg.Token(account, role, p.cfg.Lifetime)
	if err != nil {
		p.failSignIn(w, r, here, "../", err.Error())
		return
	}
	p.enter(w, r, here, session{
		Account: account, Token: token, Role: role, Expires: time.Now().Add(p.cfg.Lifetime),
		User: user.Name, Accounts: accounts, Provider: true, Hint: user.Hint,
	})
	redirect(w, "../")
}

// enter sets the cookie of a session. It leaves out what does not fit.
func (p *page) enter(w http.ResponseWriter, r *http.Request, here string, s session) {
	for _, drop := range []func(){func() { s.Hint = "" }, func() { s.Accounts = nil }} {
		if b, _ := json.Marshal(s); len(b) <= maxSession {
			break
		}
		drop()
	}
	setCookie(w, r, cookie{sessionCookie, base(r, here), p.cookies.seal(sessionCookie, s), p.cfg.Lifetime, http.SameSiteStrictMode})
}

// failSignIn sends the user back to the page, which shows the reason. The reason is not in the address: a link must not
// be able to make the page show a text.
func (p *page) failSignIn(w http.ResponseWriter, r *http.Request, here, to, reason string) {
	sealed := p.cookies.seal(problemCookie, problem{reason[:min(len(reason), maxProblem)], time.Now().Add(time.Minute)})
	setCookie(w, r, cookie{problemCookie, base(r, here), sealed, time.Minute, http.SameSiteStrictMode})
	redirect(w, to)
}

// takeProblem returns the reason of a failed sign-in, once.
func (p *page) takeProblem(w http.ResponseWriter, r *http.Request) string {
	var found problem
	if !p.cookies.open(r, problemCookie, &found) {
		return ""
	}
	setCookie(w, r, cookie{problemCookie, base(r, "session"), "", -time.Second, http.SameSiteStrictMode})
	if time.Now().After(found.Expires) {
		return ""
	}
	return found.Text
}

// redirect sends the browser to an address. Unlike [http.Redirect] it keeps a relative one.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}
