package vault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/delegate-io/dlite/secrets"
)

// session is a token and what is known of its life.
type session struct {
	token     string
	renewable bool
	ends      time.Time // zero: never
	renewAt   time.Time // zero: never
}

func newSession(token string, seconds int, renewable bool) *session {
	s := &session{token: token, renewable: renewable}
	if seconds > 0 {
		d := time.Duration(seconds) * time.Second
		s.ends = time.Now().Add(d)
		s.renewAt = time.Now().Add(d * 2 / 3)
	}
	return s
}

// ErrLogin means that the server refused the credentials of the configuration.
var ErrLogin = errors.New("vault refused the login")

// with calls f with a client that has a token. A token that the server does not
// know any more is replaced, once.
func (p *Provider) with(ctx context.Context, f func(*api.Client) error) error {
	s, err := p.current(ctx, nil)
	if err != nil {
		return err
	}
	secrets.FromContext(ctx).Add(s.token) // an earlier task may have logged in
	err = f(p.as(s.token))
	if statusOf(err) == http.StatusForbidden && p.isDead(ctx, s) {
		if s, err = p.current(ctx, s); err != nil {
			return err
		}
		err = f(p.as(s.token))
	}
	return explain(err)
}

// as is the client with a token.
func (p *Provider) as(token string) *api.Client {
	c, err := p.client.CloneWithHeaders()
	if err != nil { // it clones what New has made
		panic(fmt.Sprintf("vault: cloning the client: %v", err))
	}
	c.SetToken(token)
	return c
}

// isDead tells a token that has expired or was revoked from one that merely may
// not do something: it may always look itself up.
func (p *Provider) isDead(ctx context.Context, s *session) bool {
	_, err := p.as(s.token).Auth().Token().LookupSelfWithContext(ctx)
	return statusOf(err) == http.StatusForbidden
}

// current is the session to use, logged in or renewed if need be. It has another
// token than dead.
func (p *Provider) current(ctx context.Context, dead *session) (*session, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := time.Now()
	s := p.session
	if s == nil || dead != nil && s.token == dead.token || !s.ends.IsZero() && !now.Before(s.ends) {
		p.session = nil
		s, err := p.login(ctx)
		if err != nil {
			return nil, err
		}
		p.session = s
		return s, nil
	}
	if s.renewable && !s.renewAt.IsZero() && !now.Before(s.renewAt) {
		p.renew(ctx, s)
	}
	return p.session, nil
}

// renew prolongs the session. A failure is no news: the token is good for a
// while, and then there is a login. The caller has the turn.
func (p *Provider) renew(ctx context.Context, s *session) {
	r, err := p.as(s.token).Auth().Token().RenewSelfWithContext(ctx, 0)
	if err == nil && r != nil && r.Auth != nil {
		p.session = newSession(s.token, r.Auth.LeaseDuration, r.Auth.Renewable)
		return
	}
	again := *s
	again.renewAt = time.Now().Add(max(time.Second, time.Until(s.ends)/3))
	p.session = &again
}

// Keep renews the token until ctx ends, so that it outlives times in which nobody
// fetches a secret. With an AppRole it also logs in anew when renewing is over.
// It returns when ctx has ended, always with nil. Errors are left to Fetch, which
// tries again.
func (p *Provider) Keep(ctx context.Context) error {
	for {
		wait := 30 * time.Second
		if s, err := p.current(ctx, nil); err == nil {
			wait = untilNext(s)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}

// untilNext is when a session wants attention.
func untilNext(s *session) time.Duration {
	const longest = 10 * time.Minute
	switch {
	case s.ends.IsZero():
		return longest
	case s.renewable:
		return min(longest, max(time.Second, time.Until(s.renewAt)))
	default:
		return min(longest, max(time.Second, time.Until(s.ends)))
	}
}

// login gets a session by the one way that is configured. The caller has the
// turn.
func (p *Provider) login(ctx context.Context) (*session, error) {
	if p.cfg.AppRole != nil {
		return p.loginAppRole(ctx)
	}
	token := p.cfg.Token
	if p.cfg.TokenFile != "" {
		var err error
		if token, err = readFile(p.cfg.TokenFile); err != nil {
			return nil, fmt.Errorf("%w: the token: %w", ErrLogin, err)
		}
	}
	secrets.FromContext(ctx).Add(token)
	s, err := p.as(token).Auth().Token().LookupSelfWithContext(ctx)
	switch {
	case statusOf(err) == http.StatusForbidden:
		return nil, fmt.Errorf("%w: the token is not valid, has expired or was revoked", ErrLogin)
	case err != nil:
		return nil, explain(err)
	case s == nil || s.Data == nil:
		return nil, errors.New("vault says nothing about the token")
	}
	ttl, _ := s.TokenTTL()
	renewable, _ := s.TokenIsRenewable()
	return newSession(token, int(ttl/time.Second), renewable), nil
}

func (p *Provider) loginAppRole(ctx context.Context) (*session, error) {
	role := p.cfg.AppRole
	id, err := p.secretID(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: the secret id: %w", ErrLogin, err)
	}
	mount := strings.Trim(role.Mount, "/")
	if mount == "" {
		mount = "approle"
	}
	body := map[string]any{"role_id": role.RoleID}
	if id != "" {
		body["secret_id"] = id
	}
	s, err := p.as("").Logical().WriteWithContext(ctx, "auth/"+mount+"/login", body)
	switch {
	case statusOf(err) == http.StatusBadRequest || statusOf(err) == http.StatusForbidden:
		p.unwrapped = "" // the file may bring another one
		return nil, fmt.Errorf("%w: %w", ErrLogin, explain(err))
	case err != nil:
		return nil, explain(err)
	case s == nil || s.Auth == nil:
		return nil, fmt.Errorf("%w: the answer holds no token", ErrLogin)
	}
	secrets.FromContext(ctx).Add(s.Auth.ClientToken)
	return newSession(s.Auth.ClientToken, s.Auth.LeaseDuration, s.Auth.Renewable), nil
}

// secretID is the role's secret id, unwrapped if need be. What was unwrapped is
// kept: it can be had once.
func (p *Provider) secretID(ctx context.Context) (string, error) {
	role := p.cfg.AppRole
	id := role.SecretID
	if p.unwrapped != "" {
		return p.unwrapped, nil
	}
	if role.SecretIDFile != "" {
		var err error
		if id, err = readFile(role.SecretIDFile); err != nil {
			return "", err
		}
	}
	secrets.FromContext(ctx).Add(id)
	if !role.Wrapped {
		return id, nil
	}
	s, err := p.as(id).Logical().UnwrapWithContext(ctx, "")
	switch {
	case statusOf(err) == http.StatusBadRequest || statusOf(err) == http.StatusForbidden:
		return "", errors.New("its wrapping token has expired or was used already; if it was not by this delegate, it has been intercepted")
	case err != nil:
		return "", explain(err)
	case s == nil:
		return "", errors.New("its wrapping token stands for nothing")
	}
	v, _ := s.Data["secret_id"].(string)
	if v == "" {
		return "", errors.New("its wrapping token stands for something else")
	}
	secrets.FromContext(ctx).Add(v)
	p.unwrapped = v
	return v, nil
}

// readFile reads a credential. Its errors do not show it.
func readFile(name string) (string, error) {
	const most = 4 << 10
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return "", err
	case len(b) > most:
		return "", fmt.Errorf("file %s is larger than %d bytes", name, most)
	case strings.TrimSpace(string(b)) == "":
		return "", fmt.Errorf("file %s is empty", name)
	}
	return strings.TrimSpace(string(b)), nil
}

// statusOf is the status that the server answered with, 0 if it did not.
func statusOf(err error) int {
	var e *api.ResponseError
	if errors.As(err, &e) {
		return e.StatusCode
	}
	return 0
}

// explain makes one line of what the server said. An answer that is not Vault's
// is not quoted: it may be anything.
func explain(err error) error {
	var e *api.ResponseError
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("vault's answer cannot be read")
	case !errors.As(err, &e):
		return err
	}
	text := strings.Join(e.Errors, "; ")
	if e.RawError {
		text = "an answer that is not Vault's"
	}
	if text == "" {
		text = http.StatusText(e.StatusCode)
	}
	if e.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%w (vault answered 404)", secrets.ErrNotFound)
	}
	return fmt.Errorf("vault answered %d: %s", e.StatusCode, strings.Join(strings.Fields(text), " "))
}

// limited bounds what an answer may have.
type limited struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// CloseIdleConnections lets the client reach the transport below.
func (l limited) CloseIdleConnections() {
	if c, ok := l.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
