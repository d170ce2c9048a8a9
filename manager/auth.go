package manager

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/internal/token"
)

type callKey struct{}

// apiCall has the data that the manager keeps about a request.
type apiCall struct {
	account string
	large   func() // lets the next large body be processed; nil for a small one
}

func callOf(r *http.Request) *apiCall {
	c, _ := r.Context().Value(callKey{}).(*apiCall)
	return c
}

// account returns the account that the request's token stands for.
func account(r *http.Request) string { return callOf(r).account }

// AccountOf returns the account of a request that [Manager.Authenticate] has passed on, and an
// empty string for any other request.
func AccountOf(r *http.Request) string {
	if c := callOf(r); c != nil {
		return c.account
	}
	return ""
}

// Authenticate passes requests on that have a token of the account in the query. It
// answers 401 if the account's secret does not verify the token, and 403 if the
// token names another account.
func (m *Manager) Authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.URL.Query().Get("accountId")
		if id == "" {
			writeStatus(w, http.StatusBadRequest, "the query has no accountId: add ?accountId=<account>")
			return
		}
		scheme, tok, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		tok = strings.TrimSpace(tok)
		if tok == "" || !strings.EqualFold(scheme, "Delegate") && !strings.EqualFold(scheme, "Bearer") {
			writeStatus(w, http.StatusUnauthorized, "no token: send the header Authorization: Delegate <token>")
			return
		}
		subject, err := m.tokens.verify(m.secrets[id], tok, m.cfg.Clock.Now())
		switch {
		case errors.Is(err, token.ErrExpired):
			writeStatus(w, http.StatusUnauthorized, "the token has expired, or is not valid yet: make a new one and compare the clocks")
		case err != nil: // an unknown account gets the same answer, so that callers cannot probe for accounts
			writeStatus(w, http.StatusUnauthorized, "the token is not one of this account: compare the account id and the secret")
		case subject != id:
			writeStatus(w, http.StatusForbidden, "the token belongs to another account than accountId")
		default:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, &apiCall{account: id})))
		}
	})
}

// tokenCache remembers valid tokens, because a client sends each one for minutes. It
// stores their hashes. The text of a token would keep the whole request header in
// memory, and the time to compare texts could reveal parts of a token. The zero value
// is ready.
type tokenCache struct {
	mu       sync.Mutex
	verified map[cachedToken]verifiedToken
}

type cachedToken struct {
	secret token.Secret
	sum    [sha256.Size]byte
}

type verifiedToken struct {
	subject string
	until   time.Time
}

// maxCached bounds the cache. A full cache is emptied, which costs one verification
// per token in use.
const maxCachedTokens = 4096

// verify returns the account that a token stands for.
func (c *tokenCache) verify(secret token.Secret, text string, now time.Time) (string, error) {
	k := cachedToken{secret, sha256.Sum256([]byte(text))}
	c.mu.Lock()
	g, ok := c.verified[k]
	c.mu.Unlock()
	if ok && now.Before(g.until) {
		return g.subject, nil
	}
	claims, err := secret.Verify(text, now)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.verified == nil || len(c.verified) >= maxCachedTokens {
		c.verified = map[cachedToken]verifiedToken{}
	}
	c.verified[k] = verifiedToken{subject: claims.Account, until: claims.Expires}
	return claims.Account, nil
}
