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

// session is a token with its life time. It is immutable.
type session struct {
	token     string
	renewable bool
	expiresAt time.Time // zero means never
	renewAt   time.Time // zero means never
}

// newSession returns a session for a token with a time to live in seconds; 0 means that
// the token does not expire.
func newSession(token string, seconds int, renewable bool) *session {
	s := &session{token: token, renewable: renewable}
	if seconds > 0 {
		d := time.Duration(seconds) * time.Second
		s.expiresAt = time.Now().Add(d)
		s.renewAt = time.Now().Add(d * 2 / 3)
	}
	return s
}

// errLogin means that the server refused the configured credentials.
var errLogin = errors.New("vault refused the login")

// withClient calls f with a client that has a token. If the server refuses the token
// as invalid, withClient gets another token and calls f once more.
func (p *Provider) withClient(ctx context.Context, f func(*api.Client) error) error {
	s, err := p.currentSession(ctx, nil)
	if err != nil {
		return err
	}
	secrets.FromContext(ctx).Add(s.token) // the login may have happened in another task
	err = f(p.clientWithToken(s.token))
	if statusOf(err) == http.StatusForbidden && p.isInvalid(ctx, s) {
		if s, err = p.currentSession(ctx, s); err != nil {
			return err
		}
		err = f(p.clientWithToken(s.token))
	}
	return explain(err)
}

// clientWithToken returns a client that sends a token.
func (p *Provider) clientWithToken(token string) *api.Client {
	c, err := p.client.CloneWithHeaders()
	if err != nil { // New has made a client that can be cloned
		panic(fmt.Sprintf("vault: cloning the client: %v", err))
	}
	c.SetToken(token)
	return c
}

// isInvalid reports whether a token has expired or was revoked. Otherwise the token
// only lacks a permission: a valid token may always look itself up.
func (p *Provider) isInvalid(ctx context.Context, s *session) bool {
	_, err := p.clientWithToken(s.token).Auth().Token().LookupSelfWithContext(ctx)
	return statusOf(err) == http.StatusForbidden
}

// currentSession returns the session, after a login or a renewal if necessary. The
// session has another token than rejected, which may be nil.
func (p *Provider) currentSession(ctx context.Context, rejected *session) (*session, error) {
	select {
	case p.login <- struct{}{}:
		defer func() { <-p.login }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := time.Now()
	s := p.session
	if s == nil || rejected != nil && s.token == rejected.token || !s.expiresAt.IsZero() && !now.Before(s.expiresAt) {
		p.session = nil
		s, err := p.logIn(ctx)
		if err != nil {
			return nil, err
		}
		p.session = s
		return s, nil
	}
	if s.renewable && !s.renewAt.IsZero() && !now.Before(s.renewAt) {
		p.renewSession(ctx, s)
	}
	return p.session, nil
}

// renewSession renews the token. It ignores an error: the token stays valid for some
// time, and afterwards the provider logs in again. The caller holds p.login.
func (p *Provider) renewSession(ctx context.Context, s *session) {
	r, err := p.clientWithToken(s.token).Auth().Token().RenewSelfWithContext(ctx, 0)
	if err == nil && r != nil && r.Auth != nil {
		p.session = newSession(s.token, r.Auth.LeaseDuration, r.Auth.Renewable)
		return
	}
	retry := *s
	retry.renewAt = time.Now().Add(max(time.Second, time.Until(s.expiresAt)/3))
	p.session = &retry
}

// RenewToken renews the token until ctx ends, so that the token does not expire while
// no task fetches a secret. With an AppRole it also logs in again when the token
// cannot be renewed any more. It reports no errors: Fetch tries again and reports them.
func (p *Provider) RenewToken(ctx context.Context) {
	for {
		wait := 30 * time.Second
		if s, err := p.currentSession(ctx, nil); err == nil {
			wait = nextRenewal(s)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// nextRenewal returns the time until RenewToken checks a session again.
func nextRenewal(s *session) time.Duration {
	const maxWait = 10 * time.Minute
	switch {
	case s.expiresAt.IsZero():
		return maxWait
	case s.renewable:
		return min(maxWait, max(time.Second, time.Until(s.renewAt)))
	default:
		return min(maxWait, max(time.Second, time.Until(s.expiresAt)))
	}
}

// logIn returns a new session for the configured credentials. The caller holds p.login.
func (p *Provider) logIn(ctx context.Context) (*session, error) {
	if p.cfg.AppRole != nil {
		return p.logInAppRole(ctx)
	}
	token := p.cfg.Token
	if p.cfg.TokenFile != "" {
		var err error
		if token, err = readFile(p.cfg.TokenFile); err != nil {
			return nil, fmt.Errorf("%w: the token: %w", errLogin, err)
		}
	}
	secrets.FromContext(ctx).Add(token)
	s, err := p.clientWithToken(token).Auth().Token().LookupSelfWithContext(ctx)
	switch {
	case statusOf(err) == http.StatusForbidden:
		return nil, fmt.Errorf("%w: the token is not valid, has expired or was revoked", errLogin)
	case err != nil:
		return nil, explain(err)
	case s == nil || s.Data == nil:
		return nil, errors.New("vault answered without data about the token")
	}
	ttl, _ := s.TokenTTL()
	renewable, _ := s.TokenIsRenewable()
	return newSession(token, int(ttl/time.Second), renewable), nil
}

// loginAppRole logs in with the AppRole. The caller holds p.login.
func (p *Provider) logInAppRole(ctx context.Context) (*session, error) {
	role := p.cfg.AppRole
	id, err := p.secretID(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: the secret id: %w", errLogin, err)
	}
	mount := strings.Trim(role.Mount, "/")
	if mount == "" {
		mount = "approle"
	}
	body := map[string]any{"role_id": role.RoleID}
	if id != "" {
		body["secret_id"] = id
	}
	s, err := p.clientWithToken("").Logical().WriteWithContext(ctx, "auth/"+mount+"/login", body)
	switch {
	case statusOf(err) == http.StatusBadRequest || statusOf(err) == http.StatusForbidden:
		p.unwrapped = "" // the file may have a new secret id
		return nil, fmt.Errorf("%w: %w", errLogin, explain(err))
	case err != nil:
		return nil, explain(err)
	case s == nil || s.Auth == nil:
		return nil, fmt.Errorf("%w: the answer has no token", errLogin)
	}
	secrets.FromContext(ctx).Add(s.Auth.ClientToken)
	return newSession(s.Auth.ClientToken, s.Auth.LeaseDuration, s.Auth.Renewable), nil
}

// secretID returns the secret id of the AppRole and unwraps it if necessary. It stores
// an unwrapped secret id, because unwrapping is possible only once. The caller holds
// p.login.
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
	s, err := p.clientWithToken(id).Logical().UnwrapWithContext(ctx, "")
	switch {
	case statusOf(err) == http.StatusBadRequest || statusOf(err) == http.StatusForbidden:
		return "", errors.New("its wrapping token has expired or was used already; if another program used it, the secret id has been intercepted")
	case err != nil:
		return "", explain(err)
	case s == nil:
		return "", errors.New("its wrapping token contains nothing")
	}
	v, _ := s.Data["secret_id"].(string)
	if v == "" {
		return "", errors.New("its wrapping token contains no secret id")
	}
	secrets.FromContext(ctx).Add(v)
	p.unwrapped = v
	return v, nil
}

// readFile reads a credential. Its errors show no part of the file.
func readFile(name string) (string, error) {
	const maxSize = 4 << 10
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	switch {
	case err != nil:
		return "", err
	case len(b) > maxSize:
		return "", fmt.Errorf("file %s is larger than %d bytes", name, maxSize)
	case strings.TrimSpace(string(b)) == "":
		return "", fmt.Errorf("file %s is empty", name)
	}
	return strings.TrimSpace(string(b)), nil
}

// statusOf returns the HTTP status in an error, or 0 if the server did not answer.
func statusOf(err error) int {
	var e *api.ResponseError
	if errors.As(err, &e) {
		return e.StatusCode
	}
	return 0
}

// explain returns an error with the reason that the server gave, in one line. It does
// not quote an answer that does not come from Vault.
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
		text = "the answer does not come from Vault"
	}
	if text == "" {
		text = http.StatusText(e.StatusCode)
	}
	if e.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%w (vault answered 404)", secrets.ErrNotFound)
	}
	return fmt.Errorf("vault answered %d: %s", e.StatusCode, strings.Join(strings.Fields(text), " "))
}

// limited is a transport that bounds the size of answers.
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

// CloseIdleConnections closes the idle connections of the wrapped transport.
func (l limited) CloseIdleConnections() {
	if c, ok := l.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
