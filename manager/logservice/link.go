package logservice

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"
)

// links makes and checks upload links: what they allow is in them, signed. Only
// those that were used are remembered, until they expire.
type links struct {
	key []byte
	ttl time.Duration
	now func() time.Time

	mu   sync.Mutex           // guards used
	used map[string]time.Time // by nonce, when the link expires
}

func newLinks(key []byte, ttl time.Duration, now func() time.Time) *links {
	return &links{key: key, ttl: ttl, now: now, used: map[string]time.Time{}}
}

// grant is what a link allows.
type grant struct {
	Account string `json:"a"`
	Key     string `json:"k"`
	Expires int64  `json:"e"` // Unix time in milliseconds
	Nonce   string `json:"n"`
}

var (
	errLink    = &httpError{http.StatusForbidden, "the upload link is not valid"}
	errExpired = &httpError{http.StatusForbidden, "the upload link has expired"}
	errUsed    = &httpError{http.StatusGone, "the upload link was used"}
)

// issue makes a link, as a path segment.
func (l *links) issue(id logID) string {
	text, err := json.Marshal(grant{
		Account: id.account, Key: id.key, Expires: l.now().Add(l.ttl).UnixMilli(), Nonce: rand.Text(),
	})
	if err != nil {
		panic("logservice: encoding a link: " + err.Error()) // strings and a number
	}
	payload := base64.RawURLEncoding.EncodeToString(text)
	return payload + "." + base64.RawURLEncoding.EncodeToString(l.sign(payload))
}

func (l *links) sign(payload string) []byte {
	mac := hmac.New(sha256.New, l.key)
	mac.Write([]byte(payload))
	return mac.Sum(nil)
}

// check tells what a link allows now.
func (l *links) check(link string) (grant, error) {
	payload, sig, _ := strings.Cut(link, ".")
	got, err := base64.RawURLEncoding.DecodeString(sig)
	if err != nil || !hmac.Equal(got, l.sign(payload)) {
		return grant{}, errLink
	}
	var g grant
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(text, &g) != nil {
		return grant{}, errLink
	}
	if l.now().UnixMilli() >= g.Expires {
		return grant{}, errExpired
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.used[g.Nonce]; ok {
		return grant{}, errUsed
	}
	return g, nil
}

// use uses a link up. Of two calls at once one succeeds.
func (l *links) use(link string) (grant, error) {
	g, err := l.check(link)
	if err != nil {
		return grant{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.used[g.Nonce]; ok {
		return grant{}, errUsed
	}
	now := l.now()
	for nonce, expires := range l.used {
		if !now.Before(expires) {
			delete(l.used, nonce)
		}
	}
	l.used[g.Nonce] = time.UnixMilli(g.Expires)
	return g, nil
}

// restore makes a link good again whose upload could not be kept.
func (l *links) restore(g grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.used, g.Nonce)
}
