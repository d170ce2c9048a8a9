// Package token issues and verifies the credentials of the delegate protocols
// (docs/protocol.md 1): the account secret, its hash, and the short-lived token of
// every call. The client issues tokens and the manager verifies them:
//
//	secret, err := token.ParseSecret(os.Getenv("TOKEN"))
//	tok, err := secret.Issue("account", time.Now(), token.DefaultTTL)
//	claims, err := secret.Verify(tok, time.Now())
//
// Start reading at secret.go.
package token

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	// DefaultTTL is the lifetime of a delegate's token.
	DefaultTTL = 20 * time.Minute
	// Leeway is the allowed difference between the clocks of issuer and verifier.
	Leeway = time.Minute

	issuer   = "issuer"
	audience = "audience"

	// maxLen limits the work for a hostile token. A valid token has about 300
	// characters.
	maxLen = 16 << 10
)

// Reasons for refusing a token, for [errors.Is].
var (
	// ErrInvalid means that the text is not a token of this account's secret.
	ErrInvalid = errors.New("invalid token")
	// ErrExpired means that the token has expired or is not valid yet.
	ErrExpired = errors.New("token outside its time")
)

// Claims is the content of a token. Times are in whole seconds, and zero if the token
// does not contain them.
type Claims struct {
	// Account is the id of the account (sub). It is never empty.
	Account string
	// Issuer is the issuer (iss), "issuer" in every known client.
	Issuer string
	// Audience is the audience (aud), "audience" in every known client.
	Audience []string
	// ID is the unique id of the token (jti).
	ID string
	// Role is read, run or operate. It is empty if the token permits everything.
	Role string
	// IssuedAt and Expires limit the lifetime (iat, exp). Expires is never zero.
	IssuedAt, Expires time.Time
}

// Issue returns a token for an account that is valid from now for ttl. The token is a
// compact JWE, encrypted directly with the secret under A128GCM. Issue returns an
// error if the secret or the account is empty.
func (s Secret) Issue(account string, now time.Time, ttl time.Duration) (string, error) {
	return s.IssueRole(account, "", now, ttl)
}

// roles are the roles that a token may have. Each is the scope of its token. Tokens that permit everything have no scope.
var roles = []string{"", "read", "run", "operate"}

// scoped is the claim that restricts a token. It is an extension.
type scoped struct {
	Scope string `json:"scope,omitempty"`
}

// IssueRole is [Secret.Issue] for a token with a role: read, run or operate.
func (s Secret) IssueRole(account, role string, now time.Time, ttl time.Duration) (string, error) {
	if !slices.Contains(roles, role) {
		return "", fmt.Errorf("issuing a token: the role is %q; it must be read, run or operate", role)
	}
	if s.IsZero() {
		return "", errors.New("issuing a token: no account secret")
	}
	if account == "" {
		return "", errors.New("issuing a token: no account id")
	}
	enc, err := jose.NewEncrypter(jose.A128GCM, jose.Recipient{Algorithm: jose.DIRECT, Key: s.key[:]},
		new(jose.EncrypterOptions).WithType("JWT"))
	if err != nil {
		return "", fmt.Errorf("issuing a token: %w", err)
	}
	tok, err := jwt.Encrypted(enc).Claims(jwt.Claims{
		Issuer:   issuer,
		Subject:  account,
		Audience: jwt.Audience{audience},
		IssuedAt: jwt.NewNumericDate(now),
		Expiry:   jwt.NewNumericDate(now.Add(ttl)),
		ID:       newID(),
	}).Claims(scoped{role}).Serialize()
	if err != nil {
		return "", fmt.Errorf("issuing a token: %w", err)
	}
	return tok, nil
}

// Verify decrypts a token with the secret and checks that it is valid now, with a
// tolerance of [Leeway]. It does not limit the lifetime: the token for the report of
// an agent is valid for 10.5 hours. The issuer of a token chooses its account, so the
// caller must compare Claims.Account with the account of the secret. Errors are
// [ErrInvalid] and [ErrExpired]. They do not quote the token.
func (s Secret) Verify(token string, now time.Time) (Claims, error) {
	if s.IsZero() {
		return Claims{}, fmt.Errorf("%w: the secret is empty", ErrInvalid)
	}
	if len(token) > maxLen {
		return Claims{}, fmt.Errorf("%w: longer than %d characters", ErrInvalid, maxLen)
	}
	parsed, err := jwt.ParseEncrypted(token, []jose.KeyAlgorithm{jose.DIRECT}, []jose.ContentEncryption{jose.A128GCM})
	if err != nil {
		return Claims{}, fmt.Errorf("%w: not a compact JWE with dir and A128GCM", ErrInvalid)
	}
	var c jwt.Claims
	var restricted scoped
	if err := parsed.Claims(s.key[:], &c, &restricted); err != nil {
		return Claims{}, fmt.Errorf("%w: this account's secret does not decrypt it", ErrInvalid)
	}
	switch {
	case c.Subject == "":
		return Claims{}, fmt.Errorf("%w: it has no account", ErrInvalid)
	case !slices.Contains(roles, restricted.Scope): // of a later version
		return Claims{}, fmt.Errorf("%w: its scope is unknown", ErrInvalid)
	case c.Expiry == nil:
		return Claims{}, fmt.Errorf("%w: it never expires", ErrInvalid)
	case !now.Before(c.Expiry.Time().Add(Leeway)):
		return Claims{}, fmt.Errorf("%w: it has expired", ErrExpired)
	case c.NotBefore != nil && now.Add(Leeway).Before(c.NotBefore.Time()):
		return Claims{}, fmt.Errorf("%w: it is not valid yet", ErrExpired)
	}
	return Claims{
		Account: c.Subject, Issuer: c.Issuer, Audience: c.Audience, ID: c.ID, Role: restricted.Scope,
		IssuedAt: c.IssuedAt.Time(), Expires: c.Expiry.Time(),
	}, nil
}

// newID returns a random UUID (version 4).
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
