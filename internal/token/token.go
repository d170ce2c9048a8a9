// Package token makes and checks the credentials of the delegate protocols
// (PROTOCOL 1): the account secret, its hash, and the short-lived token that
// every call carries. The client issues with it and the manager verifies with
// it:
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
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	// DefaultTTL is how long a delegate's own token lives.
	DefaultTTL = 20 * time.Minute
	// Leeway is by how much the clocks of issuer and verifier may differ.
	Leeway = time.Minute

	issuer   = "issuer"
	audience = "audience"

	// maxLen bounds the work that a stranger can cause. A real token has about
	// 300 characters.
	maxLen = 16 << 10
)

// Why a token is refused, for [errors.Is].
var (
	// ErrInvalid: not a token, or not one of this account's secret.
	ErrInvalid = errors.New("invalid token")
	// ErrExpired: the token's time is over, or has not come yet.
	ErrExpired = errors.New("token outside its time")
)

// Claims is what a token says. Times have whole seconds; they are zero where
// the token says nothing.
type Claims struct {
	// Account is the account that the token stands for (sub); never empty.
	Account string
	// Issuer is who made it (iss), "issuer" in every known client.
	Issuer string
	// Audience is whom it is meant for (aud), "audience" in every known client.
	Audience []string
	// ID tells tokens apart (jti).
	ID string
	// IssuedAt and Expires bound its life (iat, exp); Expires is never zero.
	IssuedAt, Expires time.Time
}

// Issue makes a token for an account that is valid from now for ttl: a compact
// JWE, encrypted directly with the secret under A128GCM. It fails without a
// secret or an account.
func (s Secret) Issue(account string, now time.Time, ttl time.Duration) (string, error) {
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
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("issuing a token: %w", err)
	}
	return tok, nil
}

// Verify opens a token that was made with the secret and checks that now is
// within its time, give or take [Leeway]. Lifetimes are not capped: the token
// for an agent's own report lives 10.5 hours. Whoever can make a token chooses
// its account, so the caller compares Claims.Account with the account that the
// secret belongs to. Errors are [ErrInvalid] and [ErrExpired] and quote nothing.
func (s Secret) Verify(token string, now time.Time) (Claims, error) {
	if s.IsZero() {
		return Claims{}, fmt.Errorf("%w: there is no secret to check it with", ErrInvalid)
	}
	if len(token) > maxLen {
		return Claims{}, fmt.Errorf("%w: longer than %d characters", ErrInvalid, maxLen)
	}
	parsed, err := jwt.ParseEncrypted(token, []jose.KeyAlgorithm{jose.DIRECT}, []jose.ContentEncryption{jose.A128GCM})
	if err != nil {
		return Claims{}, fmt.Errorf("%w: not a compact JWE with dir and A128GCM", ErrInvalid)
	}
	var c jwt.Claims
	if err := parsed.Claims(s.key[:], &c); err != nil {
		return Claims{}, fmt.Errorf("%w: it does not open with this account's secret", ErrInvalid)
	}
	switch {
	case c.Subject == "":
		return Claims{}, fmt.Errorf("%w: it names no account", ErrInvalid)
	case c.Expiry == nil:
		return Claims{}, fmt.Errorf("%w: it never expires", ErrInvalid)
	case !now.Before(c.Expiry.Time().Add(Leeway)):
		return Claims{}, fmt.Errorf("%w: it has expired", ErrExpired)
	case c.NotBefore != nil && now.Add(Leeway).Before(c.NotBefore.Time()):
		return Claims{}, fmt.Errorf("%w: it is not valid yet", ErrExpired)
	}
	return Claims{
		Account: c.Subject, Issuer: c.Issuer, Audience: c.Audience, ID: c.ID,
		IssuedAt: c.IssuedAt.Time(), Expires: c.Expiry.Time(),
	}, nil
}

// newID is a random UUID (version 4).
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
