package client

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delegate-io/dlite/internal/token"
)

// credentials gives every call its token: a fixed one, or one made of the
// account secret, cached, and replaced at half its life (PROTOCOL 1).
type credentials struct {
	account string
	secret  token.Secret // zero with a fixed token
	hash    []string     // the header's value; nil without a secret
	now     func() time.Time

	current atomic.Pointer[bearer]
	mu      sync.Mutex // one goroutine makes a token, the others wait for it
}

// bearer is a token as it travels.
type bearer struct {
	token  string
	header []string  // the Authorization header, shared by all requests
	renew  time.Time // zero: never
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
			return nil, errors.New("give either the account secret or a ready-made token, not both")
		case tok == "":
			return nil, errors.New("the ready-made token is empty")
		case strings.ContainsFunc(tok, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
			return nil, errors.New("the ready-made token holds a character that a header cannot carry")
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

// bearer is the token for the next call.
func (c *credentials) bearer() (*bearer, error) {
	if b := c.current.Load(); c.usable(b) {
		return b, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.current.Load(); c.usable(b) {
		return b, nil
	}
	// Without its monotonic part the time also counts while the machine sleeps.
	now := c.now().Round(0)
	tok, err := c.secret.Issue(c.account, now, token.DefaultTTL)
	if err != nil {
		return nil, err
	}
	b := newBearer(tok, now.Add(token.DefaultTTL/2))
	c.current.Store(b)
	return b, nil
}

func (c *credentials) usable(b *bearer) bool {
	return b != nil && (b.renew.IsZero() || c.now().Round(0).Before(b.renew))
}

// drop forgets a token that the manager refused, so that the next call makes
// another. It reports whether that can help. A token that others have replaced
// meanwhile stays.
func (c *credentials) drop(b *bearer) bool {
	if c.secret.IsZero() {
		return false
	}
	c.current.CompareAndSwap(b, nil)
	return true
}

// redact removes the credentials from a text that the manager wrote: a proxy's
// error page may show the request's header.
func (c *credentials) redact(s string, b *bearer) string {
	const tooShort = 8 // would remove every "a" of the message, and is no token
	for _, v := range []string{b.token, c.secret.Reveal()} {
		if len(v) >= tooShort {
			s = strings.ReplaceAll(s, v, "[secret]")
		}
	}
	return s
}
