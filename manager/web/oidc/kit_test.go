package oidc_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/web"
	"github.com/delegate-io/dlite/manager/web/oidc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	client     = "page"
	fakeSecret = "not-a-real-secret"
)

// service is a service whose answers a test can falsify.
type service struct {
	*httptest.Server
	key *ecdsa.PrivateKey
	kid string

	mu     sync.Mutex
	codes  map[string]url.Values // the requests for the codes that were not used
	change func(claims map[string]any)
	sign   func(claims []byte) string
	info   map[string]any
	meta   map[string]any
	// handle replaces the answer at a path.
	handle map[string]http.HandlerFunc
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{codes: map[string]url.Values{}, handle: map[string]http.HandlerFunc{}, meta: map[string]any{}}
	s.rotate(t, "key-1")
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// rotate replaces the key of the service.
func (s *service) rotate(t *testing.T, kid string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key, s.kid = key, kid
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	other := s.handle[r.URL.Path]
	s.mu.Unlock()
	if other != nil {
		other(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		meta := map[string]any{
			"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize", "token_endpoint": s.URL + "/token", "jwks_uri": s.URL + "/keys",
			"end_session_endpoint": s.URL + "/end", "id_token_signing_alg_values_supported": []string{"ES256", "none", "HS256"},
		}
		for name, value := range s.meta {
			meta[name] = value
		}
		answer(http.StatusOK, meta)
	case "/keys":
		answer(http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: s.key.Public(), KeyID: s.kid, Algorithm: "ES256", Use: "sig"}}})
	case "/authorize":
		q := r.URL.Query()
		code := rand.Text()
		s.codes[code] = q
		back := url.Values{"state": q["state"], "code": {code}}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	case "/token":
		id, secret, _ := r.BasicAuth()
		q, known := s.codes[r.FormValue("code")]
		delete(s.codes, r.FormValue("code"))
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if id != client || secret != fakeSecret || !known || q.Get("code_challenge_method") != "S256" ||
			q.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) || r.FormValue("redirect_uri") != q.Get("redirect_uri") {
			answer(http.StatusBadRequest, map[string]string{"error": "invalid_grant", "error_description": "the code is not valid"})
			return
		}
		claims := map[string]any{
			"iss": s.URL, "aud": client, "sub": "user-1", "exp": time.Now().Add(time.Minute).Unix(), "iat": time.Now().Unix(), "nonce": q.Get("nonce"),
			"preferred_username": "ada", "groups": []string{"builders", "other"},
		}
		if s.change != nil {
			s.change(claims)
		}
		b, _ := json.Marshal(claims)
		sign := s.signed
		if s.sign != nil {
			sign = s.sign
		}
		answer(http.StatusOK, map[string]any{"access_token": "not-a-real-token", "token_type": "Bearer", "expires_in": 60, "id_token": sign(b)})
	case "/userinfo":
		answer(http.StatusOK, s.info)
	default:
		answer(http.StatusNotFound, map[string]string{})
	}
}

func (s *service) signed(claims []byte) string { return signedBy(s.key, s.kid, claims) }

func signedBy(key any, kid string, claims []byte) string {
	alg := jose.ES256
	if _, symmetric := key.([]byte); symmetric {
		alg = jose.HS256
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, nil)
	if err != nil {
		panic(err)
	}
	signed, err := signer.Sign(claims)
	if err != nil {
		panic(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return text
}

// site is a page that a browser opens. Its API and its log service answer with the token of the call.
type site struct {
	*testing.T
	*httptest.Server
	browser *http.Client
}

// maps are the roles of the tests.
func roles(values []string) map[string]api.Role {
	out := map[string]api.Role{}
	for _, v := range values {
		switch v {
		case "builders":
			out["acme"] = api.RoleRun
		case "admins":
			out["acme"], out["zoo"] = api.RoleOperate, api.RoleRead
		}
	}
	return out
}

func newSite(t *testing.T, s *service, change ...func(*oidc.Config)) *site {
	t.Helper()
	var page http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { page.ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	cfg := oidc.Config{
		Issuer: s.URL, ClientID: client, ClientSecret: fakeSecret, Page: server.URL + "/ui", Name: "Company", Roles: roles, Timeout: 2 * time.Second,
	}
	for _, c := range change {
		c(&cfg)
	}
	provider, err := oidc.New(cfg)
	require.NoError(t, err)
	calls := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization")+" "+r.URL.Query().Get("accountId"))
	})
	page = http.StripPrefix("/ui", web.New(web.Config{
		API: calls, Logs: calls, Provider: provider,
		Token: func(account string, role api.Role, _ time.Duration) (string, error) {
			return account + "-" + string(role), nil
		},
	}))
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &site{T: t, Server: server, browser: &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// get opens an address of the page or another one, and returns the address after all redirects.
func (s *site) get(address string) (end, text string) {
	s.Helper()
	if !strings.Contains(address, "://") {
		address = s.URL + "/ui/" + address
	}
	r, err := http.NewRequestWithContext(s.Context(), http.MethodGet, address, http.NoBody)
	require.NoError(s, err)
	answer, err := s.browser.Do(r)
	require.NoError(s, err)
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	require.NoError(s, err)
	return answer.Request.URL.String(), string(b)
}

// session is the browser's session as the page sees it.
type session struct {
	Account, Role, User, Provider, Problem string
	Accounts                               []string
}

func (s *site) session() session {
	s.Helper()
	_, text := s.get("session")
	var out session
	require.NoError(s, json.Unmarshal([]byte(text), &out))
	return out
}

// stop makes the browser stop before addresses that begin like this, and returns the one where it stopped.
func (s *site) stop(at, prefix string) string {
	s.Helper()
	stopped := ""
	s.browser.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), prefix) {
			stopped = r.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}
	defer func() { s.browser.CheckRedirect = nil }()
	s.get(at)
	require.NotEmpty(s, stopped)
	return stopped
}

// change makes a call as the page does.
func (s *site) change(method, path string) (status int, text string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.URL+"/ui/"+path, http.NoBody)
	require.NoError(s, err)
	r.Header.Set("Dlite-Page", "1")
	answer, err := s.browser.Do(r)
	require.NoError(s, err)
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	require.NoError(s, err)
	return answer.StatusCode, string(b)
}
