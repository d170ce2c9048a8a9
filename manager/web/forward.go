package web

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/go-chi/chi/v5"
)

// forwardAPI passes a call of the page to the API, with the token of its session.
func (p *page) forwardAPI(w http.ResponseWriter, r *http.Request) {
	s, ok := p.authorized(w, r)
	if !ok {
		return
	}
	rest := chi.URLParam(r, "*")
	plain := rest
	if r.URL.RawPath != "" {
		plain, _ = url.PathUnescape(rest) // forwarded answers if it fails
	}
	if plain != strings.TrimPrefix(path.Clean("/"+plain), "/") { // another router might read it as another call
		writeError(w, http.StatusBadRequest, "the path of a call must not have empty parts or dots")
		return
	}
	if !s.Role.Permits(r.Method, "/api/"+plain) { // the session may permit less than its token
		writeError(w, http.StatusForbidden, fmt.Sprintf("the session has the role %s, which does not permit this call: sign in again with another role", s.Role))
		return
	}
	out, ok := forwarded(w, r, "/api/"+rest, "accountId", s.Account)
	if !ok {
		return
	}
	out.Header.Set("Authorization", "Bearer "+s.Token)
	p.cfg.API.ServeHTTP(w, out)
}

// forwardLogs passes a call of the page to the log service.
func (p *page) forwardLogs(w http.ResponseWriter, r *http.Request) {
	s, ok := p.authorized(w, r)
	if !ok {
		return
	}
	out, ok := forwarded(w, r, "/"+chi.URLParam(r, "call"), "accountID", s.Account)
	if !ok {
		return
	}
	out.Header.Set("X-Harness-Token", s.Token)
	p.cfg.Logs.ServeHTTP(w, out)
}

func (p *page) authorized(w http.ResponseWriter, r *http.Request) (session, bool) {
	s, ok := p.cookies.session(r)
	if !ok {
		writeError(w, http.StatusUnauthorized, "there is no session, or it has ended: sign in")
	}
	return s, ok
}

// forwarded returns the request with another path, and without the headers that name the user of the page. The path is escaped if
// the path of the request is.
func forwarded(w http.ResponseWriter, r *http.Request, target, parameter, account string) (*http.Request, bool) {
	at := &url.URL{Path: target}
	if r.URL.RawPath != "" {
		plain, err := url.PathUnescape(target)
		if err != nil {
			writeError(w, http.StatusBadRequest, "the path cannot be read: escape its special characters")
			return nil, false
		}
		at.Path, at.RawPath = plain, target
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		writeError(w, http.StatusBadRequest, "the query cannot be read: escape its special characters")
		return nil, false
	}
	q.Set(parameter, account)
	at.RawQuery = q.Encode()
	out := withoutRoute(r)
	out.Header = r.Header.Clone()
	out.Header.Del("Cookie")
	out.Header.Del("Authorization")
	out.URL, out.RequestURI = at, at.RequestURI()
	return out, true
}
