package web

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/manager/api"
)

// session is the content of a cookie.
type session struct {
	Account string    `json:"a"`
	Token   string    `json:"t"`
	Role    api.Role  `json:"r"`
	Expires time.Time `json:"e"`

	// The other fields describe a user of the provider.
	User     string   `json:"u,omitempty"`
	Accounts []string `json:"l,omitempty"`
	Provider bool     `json:"p,omitempty"`
	Hint     string   `json:"h,omitempty"`
}

const (
	sessionCookie = "dlite_page"
	// maxSignIn bounds the body of a sign-in, and maxToken a token: a browser drops cookies above 4 KiB.
	maxSignIn  = 16 << 10
	maxToken   = 2 << 10
	maxAccount = 256
)

// cookies encrypts the content of cookies.
type cookies struct{ aead cipher.AEAD }

func newCookies(key []byte) cookies {
	sum := sha256.Sum256(append([]byte("sessions of the page\n"), key...))
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		panic(err) // a sum has the length of a key
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the block size of GCM
	}
	return cookies{aead}
}

// seal encrypts the content of a cookie. It is valid only in the cookie with this name.
func (c cookies) seal(name string, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the contents have only texts and times
	}
	return base64.RawURLEncoding.EncodeToString(c.aead.Seal(nil, nil, b, []byte(name)))
}

// open decrypts the content of a cookie of the request, and reports whether there is a valid one.
func (c cookies) open(r *http.Request, name string, v any) bool {
	found, err := r.Cookie(name)
	if err != nil {
		return false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(found.Value)
	if err != nil {
		return false
	}
	b, err := c.aead.Open(nil, nil, sealed, []byte(name))
	return err == nil && json.Unmarshal(b, v) == nil
}

// session returns the session of a request, if it has one that has not ended.
func (c cookies) session(r *http.Request) (session, bool) {
	var s session
	if !c.open(r, sessionCookie, &s) || !time.Now().Before(s.Expires) {
		return session{}, false
	}
	return s, true
}

// signIn checks a token and puts it into a cookie that no script can read.
func (p *page) signIn(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Account string   `json:"account"`
		Token   string   `json:"token"`
		Role    api.Role `json:"role"`
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSignIn))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		writeError(w, http.StatusBadRequest, "the body is no sign-in: "+err.Error())
		return
	}
	switch {
	case in.Account == "" || len(in.Account) > maxAccount:
		writeError(w, http.StatusBadRequest, "account must have 1 to 256 bytes")
		return
	case in.Token == "" || len(in.Token) > maxToken:
		writeError(w, http.StatusBadRequest, "token must have 1 to 2048 bytes")
		return
	case in.Role == "":
		in.Role = api.RoleOperate
	case !in.Role.Valid():
		writeError(w, http.StatusBadRequest, "role must be read, run or operate")
		return
	}
	s := session{Account: in.Account, Token: in.Token, Role: in.Role, Expires: time.Now().Add(p.cfg.Lifetime)}
	of, err := p.try(r.Context(), s)
	if err != nil {
		status := http.StatusBadGateway
		if refused := (*refusal)(nil); errors.As(err, &refused) {
			status = refused.status
		}
		writeError(w, status, err.Error())
		return
	}
	if of.Valid() && of.Below(s.Role) {
		s.Role = of
	}
	p.enter(w, r, "session", s)
	writeJSON(w, http.StatusOK, s.view())
}

// refusal is an answer of the API that is no success.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string { return r.message }

// try makes a call with a session's token, and returns the role of the token if it has one.
func (p *page) try(ctx context.Context, s session) (api.Role, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/api/stages?limit=1&accountId="+url.QueryEscape(s.Account), http.NoBody)
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+s.Token)
	answer := &recorder{header: http.Header{}, status: http.StatusOK}
	p.cfg.API.ServeHTTP(answer, withoutRoute(r))
	if answer.status == http.StatusOK {
		return api.Role(answer.header.Get(api.RoleHeader)), nil
	}
	var body struct {
		Message string `json:"error_msg"`
	}
	_ = json.Unmarshal(answer.body, &body) // an answer without a message has only its status
	if body.Message == "" {
		body.Message = http.StatusText(answer.status)
	}
	return "", &refusal{answer.status, body.Message}
}

// withoutRoute returns a request that no router has seen.
func withoutRoute(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, (*chi.Context)(nil)))
}

// recorder keeps the beginning of an answer.
type recorder struct {
	header http.Header
	status int
	body   []byte
}

func (r *recorder) Header() http.Header    { return r.header }
func (r *recorder) WriteHeader(status int) { r.status = status }

func (r *recorder) Write(b []byte) (int, error) {
	r.body = append(r.body, b[:min(len(b), maxSignIn-len(r.body))]...)
	return len(b), nil
}

// sessionView is the session as the page sees it. Without a session it has only Provider and Problem.
type sessionView struct {
	Account  string     `json:"account,omitempty"`
	Role     api.Role   `json:"role,omitempty"`
	Expires  *time.Time `json:"expires,omitempty"`
	User     string     `json:"user,omitempty"`
	Accounts []string   `json:"accounts,omitempty"`
	// Provider is the name of the provider at which the user can sign in.
	Provider string `json:"provider,omitempty"`
	// Problem is the reason why the last sign-in at the provider failed.
	Problem string `json:"problem,omitempty"`
}

func (p *page) showSession(w http.ResponseWriter, r *http.Request) {
	view := sessionView{} // no error without a session: a page asks before anyone has signed in
	if s, ok := p.cookies.session(r); ok {
		view = s.view()
	}
	if p.cfg.Provider != nil {
		view.Provider = p.cfg.Provider.Name()
		view.Problem = p.takeProblem(w, r)
	}
	writeJSON(w, http.StatusOK, view)
}

func (s session) view() sessionView {
	return sessionView{Account: s.Account, Role: s.Role, Expires: &s.Expires, User: s.User, Accounts: s.Accounts}
}

// signOut ends the session. The answer has the address where the user signs out of the provider too, if there is one.
func (p *page) signOut(w http.ResponseWriter, r *http.Request) {
	s, _ := p.cookies.session(r)
	setCookie(w, r, cookie{sessionCookie, base(r, "session"), "", -time.Second, http.SameSiteStrictMode})
	if s.Provider && p.cfg.Provider != nil {
		if address := p.cfg.Provider.SignOut(r.Context(), s.Hint); address != "" {
			writeJSON(w, http.StatusOK, map[string]string{"location": address})
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// cookie is a cookie that no script can read.
type cookie struct {
	name, path, value string
	lifetime          time.Duration
	from              http.SameSite
}

func setCookie(w http.ResponseWriter, r *http.Request, c cookie) {
	http.SetCookie(w, &http.Cookie{
		Name: c.name, Value: c.value, Path: c.path, MaxAge: int(c.lifetime / time.Second),
		HttpOnly: true, SameSite: c.from,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	})
}

func writeError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, struct {
		Message string `json:"error_msg"`
	}{message})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "encoding the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the page repeats the call if it did not get the answer
}
