package web

import (
	"crypto/rand"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/manager/api"
)

// Config configures the page. API and Logs are required.
type Config struct {
	// API serves the calls below /api, of manager.Manager and of pipeline.Service if there is one.
	API http.Handler
	// Logs is the log service. It must accept the tokens that API accepts.
	Logs http.Handler
	// Key encrypts the sessions, which are stored in cookies. It has at least 16 bytes. All handlers that serve one address
	// need the same key. Nil means a random key: users sign in again after a restart.
	Key []byte
	// Lifetime is how long a session lasts. 0 means 12 hours. A session also ends with its token.
	Lifetime time.Duration
	// Provider signs users in with accounts of another service, as package oidc does. Nil means that users need
	// a token. With a provider, Token is required.
	Provider Provider
	// Token makes the tokens of users of the provider, which API and Logs must accept: manager.Manager.Token.
	Token func(account string, role api.Role, lifetime time.Duration) (string, error)
}

// minKey is the least length of a key, in bytes.
const minKey = 16

// New returns the page as a handler. It is safe for concurrent use. New panics without API or Logs, with a provider but
// without Token, and if the key is too short.
func New(cfg Config) http.Handler {
	switch {
	case cfg.API == nil || cfg.Logs == nil:
		panic("web: the configuration needs API and Logs")
	case cfg.Provider != nil && cfg.Token == nil:
		panic("web: a configuration with Provider needs Token")
	case cfg.Key == nil:
		cfg.Key = make([]byte, minKey)
		_, _ = rand.Read(cfg.Key) // never fails
	case len(cfg.Key) < minKey:
		panic("web: the key must have at least 16 bytes")
	}
	if cfg.Lifetime <= 0 {
		cfg.Lifetime = 12 * time.Hour
	}
	p := &page{cfg: cfg, cookies: newCookies(cfg.Key)}
	files := newFiles()
	r := chi.NewRouter()
	r.Use(harden, http.NewCrossOriginProtection().Handler)
	r.Get("/", files.index)
	r.Get("/assets/{version}/{name}", files.asset)
	r.Get("/session", p.showSession)
	if cfg.Provider != nil {
		r.Get("/signin", p.beginSignIn)
		r.Get("/signin/callback", p.finishSignIn)
	}
	r.Group(func(r chi.Router) {
		r.Use(onlyFromPage)
		r.Post("/session", p.signIn)
		r.Delete("/session", p.signOut)
		r.HandleFunc("/api/*", p.forwardAPI)
	})
	r.Get("/logs/{call:stream|blob}", p.forwardLogs)
	r.NotFound(func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, http.StatusNotFound, "the page has no such address")
	})
	return r
}

type page struct {
	cfg     Config
	cookies cookies
}

// policy is the Content-Security-Policy of the page. Scripts and styles come from the page's own files only, and no
// script can turn text into markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// dataPolicy is the policy of all other answers. A browser that is led to them shows them as text.
const dataPolicy = "default-src 'none'; frame-ancestors 'none'; sandbox"

// harden sets the headers that protect every answer.
func harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", dataPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			writeError(w, http.StatusForbidden, "another site may not call the page")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// pageHeader is a header that a form or a link of another site cannot send.
const pageHeader = "Dlite-Page"

// onlyFromPage refuses changes that lack the page's header.
func onlyFromPage(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get(pageHeader) == "" {
			writeError(w, http.StatusForbidden, "the request has no header "+pageHeader)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// base returns the path below which the handler is mounted, with a final slash. Rest is the path of the request below it.
func base(r *http.Request, rest string) string {
	full, _, _ := strings.Cut(r.RequestURI, "?")
	if cut, ok := strings.CutSuffix(full, rest); ok && strings.HasPrefix(cut, "/") {
		return path.Clean(cut) + trailing(path.Clean(cut))
	}
	return "/"
}

func trailing(p string) string {
	if strings.HasSuffix(p, "/") {
		return ""
	}
	return "/"
}
