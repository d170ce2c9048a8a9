package logservice

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Access is what a request asks for.
type Access struct {
	Account, Key string
	// Token is what the request shows; it may be empty.
	Token string
	// Write is false for calls that only read.
	Write bool
}

// Tokens authorises one fixed token for each account, given as a map of
// accounts to tokens, for everything. Accounts without a token, and an empty
// token, are refused.
func Tokens(tokens map[string]string) func(Access) bool {
	return func(a Access) bool {
		want := tokens[a.Account]
		return want != "" && subtle.ConstantTimeCompare([]byte(want), []byte(a.Token)) == 1
	}
}

// Grant is what a token of a [Signer] allows.
type Grant struct {
	// Account is whose logs it is about. Required.
	Account string
	// Prefix limits it to the log of that key and those whose keys go on with a
	// slash behind it. Empty means all logs of the account.
	Prefix string
	// ReadOnly allows no writing.
	ReadOnly bool
	// Expires is when the token is good no more, to the second. Required.
	Expires time.Time
}

// allows tells whether the grant covers an access, but for its token.
func (g Grant) allows(a Access, now time.Time) bool {
	within := g.Prefix == "" || a.Key == g.Prefix ||
		strings.HasPrefix(a.Key, strings.TrimSuffix(g.Prefix, "/")+"/")
	return a.Account != "" && a.Account == g.Account && within && (!a.Write || !g.ReadOnly) && now.Before(g.Expires)
}

// Signer issues tokens for accounts and tells whether one allows an access. What
// a token allows is in it, signed; nothing is kept. It is safe for concurrent
// use.
type Signer struct {
	key []byte
	now func() time.Time
}

// NewSigner makes a signer. The key has at least 32 bytes, from crypto/rand or
// [LoadKey]; with a shorter one NewSigner panics.
func NewSigner(key []byte) *Signer { return newSigner(key, time.Now) }

func newSigner(key []byte, now func() time.Time) *Signer {
	if len(key) < keySize {
		panic(fmt.Sprintf("logservice: a key of %d bytes; want at least %d", len(key), keySize))
	}
	return &Signer{key: derive(key, "token"), now: now}
}

const keySize = 32

// claims are a Grant on the wire.
type claims struct {
	Account  string `json:"a"`
	Prefix   string `json:"p,omitempty"`
	ReadOnly bool   `json:"r,omitempty"`
	Expires  int64  `json:"e"` // Unix time in seconds
}

// Issue makes a token.
func (s *Signer) Issue(g Grant) string {
	return seal(s.key, claims{g.Account, g.Prefix, g.ReadOnly, g.Expires.Unix()})
}

// Authorize tells whether the token allows the access. It goes into
// [Config].Authorize.
func (s *Signer) Authorize(a Access) bool {
	var c claims
	if !unseal(s.key, a.Token, &c) {
		return false
	}
	g := Grant{Account: c.Account, Prefix: c.Prefix, ReadOnly: c.ReadOnly, Expires: time.Unix(c.Expires, 0)}
	return g.allows(a, s.now())
}

// derive makes a key for one purpose, so that what is signed for one is nothing
// for the other.
func derive(key []byte, purpose string) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte("dlite log service " + purpose)) // never fails
	return mac.Sum(nil)
}

// seal is v as text, signed.
func seal(key []byte, v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("logservice: encoding a token: " + err.Error()) // strings and numbers
	}
	payload := base64.RawURLEncoding.EncodeToString(text)
	return payload + "." + base64.RawURLEncoding.EncodeToString(sign(key, payload))
}

// unseal reads what seal made with the same key.
func unseal(key []byte, text string, v any) bool {
	payload, sig, _ := strings.Cut(text, ".")
	got, err := base64.RawURLEncoding.Strict().DecodeString(sig)
	if err != nil || !hmac.Equal(got, sign(key, payload)) {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	return err == nil && json.Unmarshal(raw, v) == nil
}

func sign(key []byte, payload string) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(payload)) // never fails
	return mac.Sum(nil)
}

// LoadKey reads a key from a file, or makes one and keeps it there, readable by
// nobody else.
func LoadKey(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) < keySize {
		return nil, fmt.Errorf("%s holds no key of %d bytes in hexadecimal", path, keySize)
	}
	return key, nil
}

func makeKey(path string) ([]byte, error) {
	key := newKey()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	// Under another name until it is complete: half a key would be kept for ever.
	f, err := os.CreateTemp(filepath.Dir(path), ".key-*")
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(hex.EncodeToString(key) + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return nil, fmt.Errorf("keeping the key: %w", err)
	}
	return key, nil
}

func newKey() []byte {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return key
}
