package token

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

// secretLen is the length of a secret's hexadecimal form.
const secretLen = 32

// Secret is an account's secret: 16 bytes, written as 32 hexadecimal characters
// (PROTOCOL 1). It proves membership of the account and encrypts tokens.
//
// A Secret does not print itself: every verb of fmt, and the encodings that
// look for text, give "[secret]". [Secret.Reveal] is the only way to the value.
// The zero value is no secret: it hashes to nothing and opens no token. Secrets
// are safe for concurrent use and can be compared with ==.
type Secret struct {
	text string
	key  [secretLen / 2]byte
}

// ParseSecret reads a secret in either of its configured forms: the 32
// hexadecimal characters, or the base64 of those characters, padded or not.
// White space around it is ignored. The error says what is wrong with the form
// and holds no part of the value.
func ParseSecret(s string) (Secret, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return Secret{}, errors.New("the account secret is empty")
	}
	text := s
	if len(s) != secretLen {
		b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
		if err != nil || len(b) != secretLen {
			return Secret{}, fmt.Errorf("the account secret must be %d hexadecimal characters, or the base64 of them; "+
				"this one has %d characters and is neither", secretLen, len(s))
		}
		text = string(b)
	}
	secret := Secret{text: text}
	if _, err := hex.Decode(secret.key[:], []byte(text)); err != nil {
		return Secret{}, fmt.Errorf("the account secret must be %d hexadecimal characters, or the base64 of them; "+
			"this one has the length but holds other characters", secretLen)
	}
	return secret, nil
}

// Reveal is the secret as 32 hexadecimal characters, spelled as it was
// configured; empty for the zero value. A registration carries it.
func (s Secret) Reveal() string { return s.text }

// IsZero tells whether there is no secret.
func (s Secret) IsZero() bool { return s.text == "" }

// Hash is the delegateTokenHash (PROTOCOL 1): the SHA-256 of the 32 characters
// as a hexadecimal number, so without leading zeros. Empty for the zero value.
func (s Secret) Hash() string {
	if s.IsZero() {
		return ""
	}
	sum := sha256.Sum256([]byte(s.text))
	return strings.TrimLeft(hex.EncodeToString(sum[:]), "0")
}

const redacted = "[secret]"

// String hides the secret.
func (s Secret) String() string { return redacted }

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return redacted }

// Format hides the secret from every verb, also those that would walk its fields.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText hides the secret from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
