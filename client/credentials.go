package client

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delegate-io/dlite/internal/token"
)

// credentials provides the token of every call: a fixed token, or a token that is
// issued with the account secret, cached, and renewed after half of its lifetime
// (docs/protocol.md 1).
type credentials struct {
	account string
	secret  token.Secret // zero for a fixed token
	hash    []string     // value of the header; nil without a secret
	now     func() time.Time

	current atomic.Pointer[bearer]
	mu      sync.Mutex // held while issuing a token; other goroutines wait
}

// bearer is a token with its header.
type bearer struct {
	token  string
	header []string  // the Authorization header, shared by all requests
	renew  time.Time // time of the renewal; zero means never
}

func newBearer(tok string, renew time.Time) *bearer {
	return &bearer{token: tok, header: []string{"Delegate " + tok}, renew: renew}
}

func newCredentials(account, secret string, cfg *config) (*credentials, error) {
	c := &credentials{account: account, now: cfg.now}
	if cfg.token != nil {
		tok := strings.TrimSpace(*cfg.token)
		switch {
		case secret != "":
			return nil, errors.New("the account secret and a fixed token exclude each other: remove one of them")
		case tok == "":
			return nil, errors.New("the fixed token is empty")
		case strings.ContainsFunc(tok, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
			return nil, errors.New("the fixed token contains a character that is not valid in a header")
		}
		c.current.Store(newBearer(tok, time.Time{}))
		return c, nil
	}
	s, err := token.ParseSecret(secret)
	if err != nil {
		return nil, err
	}
	c.secret, c.hash = s, []string{s.Hash()}
	return c, nil
}

// bearer returns the token for the next call.
func (c *credentials) bearer() (*bearer, error) {
	if b := c.current.Load(); c.isUsable(b) {
		return b, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.current.Load(); c.isUsable(b) {
		return b, nil
	}
	// Without its monotonic part the time includes the sleep of the machine.
	now := c.now().Round(0)
	tok, err := c.secret.Issue(c.account, now, token.DefaultTTL)
	if err != nil {
		return nil, err
	}
	b := newBearer(tok, now.Add(token.DefaultTTL/2))
	c.current.Store(b)
	return b, nil
}

func (c *credentials) isUsable(b *bearer) bool {
	return b != nil && (b.renew.IsZero() || c.now().Round(0).Before(b.renew))
}

// discard removes a token that the manager refused, so that the next call issues a
// new one. It returns false for a fixed token. If another goroutine has replaced
// the token, the new token stays.
func (c *credentials) discard(b *bearer) bool {
	if c.secret.IsZero() {
		return false
	}
	c.current.CompareAndSwap(b, nil)
	return true
}

// redact removes the credentials from a text of the manager: the error page of a
// proxy may quote the header of the request.
func (c *credentials) redact(s string, b *bearer) string {
	const minToken = 8 // a shorter value would match ordinary text, and is no token
	for _, v := range []string{b.token, c.secret.Reveal()} {
		if len(v) >= minToken {
			s = strings.ReplaceAll(s, v, "[secret]")
		}
	}
	return s
}
