package web_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/manager/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fakeToken = "not-a-real-token"

// behind is an API and a log service that accept one token, and answer with the request.
func behind(token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token && r.Header.Get("X-Harness-Token") != token {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error_msg":"the token is not one of this account"}`)
			return
		}
		_, _ = io.WriteString(w, r.Method+" "+r.URL.EscapedPath()+" "+r.URL.RawQuery+" cookie="+r.Header.Get("Cookie"))
	})
}

// site is a page at a path of a server.
type site struct {
	t      *testing.T
	url    string
	cookie *http.Cookie
}

func newSite(t *testing.T, cfg web.Config) *site {
	t.Helper()
	if cfg.API == nil {
		cfg.API, cfg.Logs = behind(fakeToken), behind(fakeToken)
	}
	routes := chi.NewRouter()
	routes.Mount("/deep/ui", web.New(cfg))
	server := httptest.NewServer(routes)
	t.Cleanup(func() { server.Close(); server.Client().CloseIdleConnections() })
	return &site{t: t, url: server.URL + "/deep/ui/"}
}

// call makes a call as the page does, with changes to its headers.
func (s *site) call(method, path, body string, headers ...string) (status int, text string, header http.Header) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Dlite-Page", "1")
	if s.cookie != nil {
		r.AddCookie(s.cookie)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	require.NoError(s.t, err)
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	return answer.StatusCode, string(b), answer.Header
}

func cookies(header http.Header) []*http.Cookie { return (&http.Response{Header: header}).Cookies() }

func (s *site) signIn(role string) {
	s.t.Helper()
	status, text, answer := s.call(http.MethodPost, "session", `{"account":"acme","token":"`+fakeToken+`","role":"`+role+`"}`)
	require.Equal(s.t, http.StatusOK, status, text)
	assert.NotContains(s.t, text, fakeToken)
	require.Len(s.t, cookies(answer), 1)
	s.cookie = cookies(answer)[0]
}

func TestATokenBecomesACookieThatScriptsCannotRead(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Config{})
	s.signIn("operate")
	assert.True(t, s.cookie.HttpOnly)
	assert.Equal(t, http.SameSiteStrictMode, s.cookie.SameSite)
	assert.Equal(t, "/deep/ui/", s.cookie.Path)
	assert.Equal(t, 12*60*60, s.cookie.MaxAge)
	assert.NotContains(t, s.cookie.Value, fakeToken)

	status, text, answer := s.call(http.MethodGet, "api/runs/a%2Fb?status=FAILED", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "GET /api/runs/a%2Fb accountId=acme&status=FAILED cookie=", text)
	assert.Contains(t, answer.Get("Content-Security-Policy"), "sandbox")
	_, text, _ = s.call(http.MethodGet, "logs/stream?key=k&accountID=other", "")
	assert.Equal(t, "GET /stream accountID=acme&key=k cookie=", text)

	_, _, answer = s.call(http.MethodDelete, "session", "")
	assert.Negative(t, cookies(answer)[0].MaxAge)
}

func TestSessionsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Config{})
	for body, want := range map[string]int{
		`{"account":"acme","token":"another-fake-token"}`:             http.StatusUnauthorized,
		`{"account":"","token":"x"}`:                                  http.StatusBadRequest,
		`{"account":"a","token":""}`:                                  http.StatusBadRequest,
		`{"account":"a","token":"x","role":"root"}`:                   http.StatusBadRequest,
		`{"account":"a","token":"x","more":1}`:                        http.StatusBadRequest,
		`{"account":"a","token":"` + strings.Repeat("x", 3000) + `"}`: http.StatusBadRequest,
	} {
		status, text, answer := s.call(http.MethodPost, "session", body)
		assert.Equal(t, want, status, text)
		assert.Empty(t, cookies(answer))
	}
	status, _, _ := s.call(http.MethodGet, "api/runs", "")
	assert.Equal(t, http.StatusUnauthorized, status)

	s.signIn("operate")
	other := newSite(t, web.Config{Key: bytes.Repeat([]byte("k"), 32)})
	other.cookie = s.cookie
	status, _, _ = other.call(http.MethodGet, "api/runs", "")
	assert.Equal(t, http.StatusUnauthorized, status, "the key of another page")

	short := newSite(t, web.Config{Lifetime: time.Nanosecond})
	short.signIn("operate")
	status, _, _ = short.call(http.MethodGet, "api/runs", "")
	assert.Equal(t, http.StatusUnauthorized, status, "a session that has ended")
}

func TestOtherSitesCannotUseASession(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Config{})
	s.signIn("operate")
	for name, headers := range map[string][]string{
		"no header of the page": {"Dlite-Page", ""},
		"another origin":        {"Origin", "https://evil.example"},
		"another site":          {"Sec-Fetch-Site", "cross-site"},
		"a sibling domain":      {"Sec-Fetch-Site", "same-site"},
	} {
		status, _, _ := s.call(http.MethodPost, "api/pause", "", headers...)
		assert.Equal(t, http.StatusForbidden, status, name)
	}
	status, _, _ := s.call(http.MethodGet, "api/runs", "", "Sec-Fetch-Site", "cross-site")
	assert.Equal(t, http.StatusForbidden, status)
	status, _, _ = s.call(http.MethodPost, "api/pause", "", "Sec-Fetch-Site", "same-origin")
	assert.Equal(t, http.StatusOK, status)
}

func TestARolePermitsNoMoreThanItSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, path       string
		read, run, operate bool
	}{
		{http.MethodGet, "api/runs", true, true, true},
		{http.MethodPost, "api/lint", true, true, true},
		{http.MethodPost, "api/runs/a/abort", false, true, true},
		{http.MethodPost, "api/stages/a/abort", false, true, true},
		{http.MethodPost, "api/pause", false, false, true},
		{http.MethodPost, "api/delegates/a/drain", false, false, true},
		{http.MethodPut, "api/limits", false, false, true},
		{http.MethodPut, "api/pipelines/a", false, false, true},
		{http.MethodPost, "api/agent/delegates/register", false, false, false},
		{http.MethodGet, "api/executions/a/request", false, false, false},
		{http.MethodPost, "api/hooks/a/b", false, false, false},
		{http.MethodPost, "api/%61gent/delegates/register", false, false, false},
		{http.MethodPost, "api/runs/%2e%2e/pause", false, false, false},
		{http.MethodPost, "api//agent/delegates/register", false, false, false},
	} {
		for role, want := range map[string]bool{"read": c.read, "run": c.run, "operate": c.operate} {
			s := newSite(t, web.Config{})
			s.signIn(role)
			status, _, _ := s.call(c.method, c.path, "")
			assert.Equal(t, want, status == http.StatusOK, "%s %s %s", role, c.method, c.path)
		}
	}
}

func TestThePageRunsOnlyItsOwnScripts(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Config{})
	status, html, answer := s.call(http.MethodGet, "", "")
	require.Equal(t, http.StatusOK, status)
	policy := answer.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
		assert.Contains(t, policy, want)
	}
	assert.NotContains(t, policy, "unsafe")
	addresses := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(html, -1)
	require.NotEmpty(t, addresses)
	for _, a := range addresses {
		require.True(t, strings.HasPrefix(a[1], "assets/"), "%s must work below any path", a[1])
		status, _, answer := s.call(http.MethodGet, a[1], "")
		assert.Equal(t, http.StatusOK, status, a[1])
		assert.NotEmpty(t, answer.Get("Content-Type"))
		assert.Contains(t, answer.Get("Cache-Control"), "immutable")
	}
	assert.NotRegexp(t, `(?i)<style|style=|onload=|<script>`, html)

	status, _, _ = s.call(http.MethodGet, "assets/0/main.js", "")
	assert.Equal(t, http.StatusNotFound, status)
}

// The scripts have no call that parses text as markup or as a program.
func TestNoScriptParsesTextAsMarkup(t *testing.T) {
	t.Parallel()
	unsafe := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|srcdoc|https?://`)
	total := 0
	require.NoError(t, fs.WalkDir(os.DirFS("assets"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile("assets/" + name)
		require.NoError(t, err)
		for _, found := range unsafe.FindAllString(strings.ReplaceAll(string(b), "http://www.w3.org/2000/svg", ""), -1) {
			t.Errorf("%s has %s", name, found)
		}
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		_, _ = z.Write(b)
		require.NoError(t, z.Close())
		total += zipped.Len()
		return nil
	}))
	t.Log("compressed size in bytes:", total)
	assert.Less(t, total, 150<<10)
}

func TestTheAddressOfThePageEndsWithASlash(t *testing.T) {
	t.Parallel()
	h := web.New(web.Config{API: behind(fakeToken), Logs: behind(fakeToken)})
	mux := http.NewServeMux()
	mux.Handle("/a/ui/", http.StripPrefix("/a/ui", h))
	mux.Handle("/a/ui", http.StripPrefix("/a/ui", h))
	for path, want := range map[string]string{"/a/ui": "ui/", "/a/ui/": ""} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		assert.Equal(t, want, w.Header().Get("Location"))
	}
}

func TestAnIncompleteConfigurationPanics(t *testing.T) {
	t.Parallel()
	assert.Panics(t, func() { web.New(web.Config{}) })
	assert.Panics(t, func() { web.New(web.Config{API: behind(""), Logs: behind(""), Key: []byte("short")}) })
}
