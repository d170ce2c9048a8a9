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

// Secret is the secret of an account: 16 bytes, written as 32 hexadecimal characters
// (docs/protocol.md 1). It authenticates delegates of the account and encrypts tokens.
//
// Every verb of fmt and every text encoder prints a Secret as "[secret]". Only
// [Secret.Reveal] returns the value. The zero value is no secret: its hash is empty
// and it verifies no token. Secrets are safe for concurrent use and comparable.
type Secret struct {
	text string
	key  [secretLen / 2]byte
}

// ParseSecret parses a secret in one of two forms: the 32 hexadecimal characters, or
// the base64 of those characters with or without padding. It ignores surrounding
// white space. The error describes the form and contains no part of the value.
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
			"this one has the right length but other characters", secretLen)
	}
	return secret, nil
}

// Reveal returns the 32 hexadecimal characters in their original case, for a
// registration. It is empty for the zero value.
func (s Secret) Reveal() string { return s.text }

// IsZero reports whether s is the zero value.
func (s Secret) IsZero() bool { return s.text == "" }

// Hash returns the delegateTokenHash (docs/protocol.md 1): the SHA-256 of the 32
// characters as a hexadecimal number without leading zeros. It is empty for the zero
// value.
func (s Secret) Hash() string {
	if s.IsZero() {
		return ""
	}
	sum := sha256.Sum256([]byte(s.text))
	return strings.TrimLeft(hex.EncodeToString(sum[:]), "0")
}

const redacted = "[secret]"

// String returns "[secret]".
func (s Secret) String() string { return redacted }

// GoString returns "[secret]", for %#v.
func (s Secret) GoString() string { return redacted }

// Format writes "[secret]" for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText returns "[secret]".
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
