package manager

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager/api"
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
// token names another account, or has a role that does not permit the call.
func (m *Manager) Authenticate(next http.Handler) http.Handler { return m.auth.authenticate(next) }

// Authenticate returns a middleware that is [Manager.Authenticate], for a program that
// runs in another process than the manager. Accounts is [Config.Accounts].
func Authenticate(accounts map[string]string) (func(http.Handler) http.Handler, error) {
	a, err := newAuthenticator(accounts, time.Now)
	if err != nil {
		return nil, fmt.Errorf("manager: %w", err)
	}
	return a.authenticate, nil
}

// authenticator checks the tokens of requests.
type authenticator struct {
	secrets map[string]token.Secret
	tokens  tokenCache
	now     func() time.Time
}

func newAuthenticator(accounts map[string]string, now func() time.Time) (*authenticator, error) {
	secrets, err := parseSecrets(accounts)
	return &authenticator{secrets: secrets, now: now}, err
}

func parseSecrets(accounts map[string]string) (map[string]token.Secret, error) {
	if len(accounts) == 0 {
		return nil, errors.New("no account is configured; Config.Accounts needs an id and its secret")
	}
	secrets := make(map[string]token.Secret, len(accounts))
	for id, text := range accounts {
		secret, err := token.ParseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("account %q: %w", id, err)
		}
		if id == "" {
			return nil, errors.New("an account has no id")
		}
		secrets[id] = secret
	}
	return secrets, nil
}

func (a *authenticator) authenticate(next http.Handler) http.Handler {
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
		got, err := a.tokens.verify(a.secrets[id], tok, a.now())
		switch {
		case errors.Is(err, token.ErrExpired):
			writeStatus(w, http.StatusUnauthorized, "the token has expired, or is not valid yet: make a new one and compare the clocks")
		case err != nil: // an unknown account gets the same answer, so that callers cannot probe for accounts
			writeStatus(w, http.StatusUnauthorized, "the token is not one of this account: compare the account id and the secret")
		case got.subject != id:
			writeStatus(w, http.StatusForbidden, "the token belongs to another account than accountId")
		case got.role != "" && !got.role.Permits(r.Method, r.URL.Path):
			writeStatus(w, http.StatusForbidden, refusedRole(got.role, r))
		default:
			if got.role != "" {
				w.Header().Set(api.RoleHeader, string(got.role))
			}
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
	role    api.Role
	until   time.Time
}

// refusedRole says why a token with a role is refused.
func refusedRole(role api.Role, r *http.Request) string {
	needs := api.Needs(r.Method, r.URL.Path)
	if needs == "" {
		return fmt.Sprintf("the token has the role %s, and this is a call of delegates: use a token without a role", role)
	}
	return fmt.Sprintf("the token has the role %s, and this call needs the role %s: use a token that has it", role, needs)
}

// Token returns a token for an account and a role that is valid from now for a time, for [Manager.Authenticate]. It
// returns an error if the account or the role is unknown.
func (m *Manager) Token(account string, role api.Role, lifetime time.Duration) (string, error) {
	secret, ok := m.auth.secrets[account]
	if !ok {
		return "", fmt.Errorf("there is no account %q: Config.Accounts has the accounts", account)
	}
	if !role.Valid() {
		return "", fmt.Errorf("there is no role %q: the roles are read, run and operate", role)
	}
	return secret.IssueRole(account, string(role), m.auth.now(), lifetime)
}

// maxCached bounds the cache. A full cache is emptied, which costs one verification
// per token in use.
const maxCachedTokens = 4096

// verify returns the account and the role of a token.
func (c *tokenCache) verify(secret token.Secret, text string, now time.Time) (verifiedToken, error) {
	k := cachedToken{secret, sha256.Sum256([]byte(text))}
	c.mu.Lock()
	g, ok := c.verified[k]
	c.mu.Unlock()
	if ok && now.Before(g.until) {
		return g, nil
	}
	claims, err := secret.Verify(text, now)
	if err != nil {
		return verifiedToken{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.verified == nil || len(c.verified) >= maxCachedTokens {
		c.verified = map[cachedToken]verifiedToken{}
	}
	g = verifiedToken{subject: claims.Account, role: api.Role(claims.Role), until: claims.Expires}
	c.verified[k] = g
	return g, nil
}
