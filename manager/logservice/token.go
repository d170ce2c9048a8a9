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

// Access describes the access that a request needs.
type Access struct {
	Account, Key string
	// Token is the token of the request. It may be empty.
	Token string
	// Write is false for calls that only read.
	Write bool
}

// Tokens returns an Authorize function with one fixed token for each account. tokens
// maps accounts to tokens. A token allows all calls of its account. Tokens refuses
// accounts without a token, and empty tokens.
func Tokens(tokens map[string]string) func(Access) bool {
	return func(a Access) bool {
		want := tokens[a.Account]
		return want != "" && subtle.ConstantTimeCompare([]byte(want), []byte(a.Token)) == 1
	}
}

// Grant contains the permissions of a token of a [Signer].
type Grant struct {
	// Account is the account of the logs. It is required.
	Account string
	// Prefix limits the grant to the log with this key and to logs whose keys begin
	// with Prefix and a slash. Empty means all logs of the account.
	Prefix string
	// Stage is the id of the stage that the token belongs to, if any. The signer does
	// not use it: see [Signer.Check].
	Stage string
	// ReadOnly refuses calls that write.
	ReadOnly bool
	// Expires is the time at which the token expires, in whole seconds. It is required.
	Expires time.Time
}

// allows reports whether the grant permits the access. It does not check the token.
func (g Grant) allows(a Access, now time.Time) bool {
	within := g.Prefix == "" || a.Key == g.Prefix ||
		strings.HasPrefix(a.Key, strings.TrimSuffix(g.Prefix, "/")+"/")
	return a.Account != "" && a.Account == g.Account && within && (!a.Write || !g.ReadOnly) && now.Before(g.Expires)
}

// Signer issues tokens for accounts and checks them. A token contains its signed
// permissions; the signer stores nothing. It is safe for concurrent use.
type Signer struct {
	key []byte
	now func() time.Time
}

// NewSigner returns a signer. The key must have at least 32 bytes, from crypto/rand or
// [LoadKey]. NewSigner panics if it is shorter.
func NewSigner(key []byte) *Signer { return newSigner(key, time.Now) }

func newSigner(key []byte, now func() time.Time) *Signer {
	if len(key) < keySize {
		panic(fmt.Sprintf("logservice: a key of %d bytes; want at least %d", len(key), keySize))
	}
	return &Signer{key: derive(key, "token"), now: now}
}

const keySize = 32

// claims is the wire format of a Grant.
type claims struct {
	Account  string `json:"a"`
	Prefix   string `json:"p,omitempty"`
	Stage    string `json:"s,omitempty"`
	ReadOnly bool   `json:"r,omitempty"`
	Expires  int64  `json:"e"` // Unix time in seconds
}

// Issue returns a new token.
func (s *Signer) Issue(g Grant) string {
	return seal(s.key, claims{g.Account, g.Prefix, g.Stage, g.ReadOnly, g.Expires.Unix()})
}

// Authorize reports whether the token allows the access. Use it as [Config].Authorize.
func (s *Signer) Authorize(a Access) bool {
	_, ok := s.Check(a)
	return ok
}

// Check is [Signer.Authorize] for callers that apply further conditions to the grant,
// such as the end of its stage.
func (s *Signer) Check(a Access) (Grant, bool) {
	var c claims
	if !unseal(s.key, a.Token, &c) {
		return Grant{}, false
	}
	g := Grant{Account: c.Account, Prefix: c.Prefix, Stage: c.Stage, ReadOnly: c.ReadOnly, Expires: time.Unix(c.Expires, 0)}
	return g, g.allows(a, s.now())
}

// derive returns a key for one purpose. A signature for one purpose is therefore
// invalid for another.
func derive(key []byte, purpose string) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte("dlite log service " + purpose)) // never fails
	return mac.Sum(nil)
}

// seal returns v as signed text.
func seal(key []byte, v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("logservice: encoding a token: " + err.Error()) // strings and numbers always encode
	}
	payload := base64.RawURLEncoding.EncodeToString(text)
	return payload + "." + base64.RawURLEncoding.EncodeToString(sign(key, payload))
}

// unseal decodes text that seal returned for the same key. It reports whether the
// signature is valid.
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

// LoadKey reads a key from a file. If the file does not exist, LoadKey creates it with
// a new key, readable only by its owner.
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
		return nil, fmt.Errorf("%s does not contain a key of %d bytes in hexadecimal", path, keySize)
	}
	return key, nil
}

func makeKey(path string) ([]byte, error) {
	key := newKey()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	// Use a temporary name until the file is complete, so that a crash leaves no
	// partial key.
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
		return nil, fmt.Errorf("storing the key: %w", err)
	}
	return key, nil
}

func newKey() []byte {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return key
}
