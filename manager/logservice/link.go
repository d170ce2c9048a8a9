package logservice

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// links issues and checks upload links. A link contains its permissions and a
// signature. links records only used links, until they expire. Servers with shared
// streams record them together; otherwise the record ends with the process.
type links struct {
	key    []byte
	ttl    time.Duration
	now    func() time.Time
	shared livelog.Shared // may be nil

	mu   sync.Mutex           // guards used
	used map[string]time.Time // time at which the link expires, by nonce
}

func newLinks(key []byte, ttl time.Duration, now func() time.Time, shared livelog.Shared) *links {
	return &links{key: derive(key, "link"), ttl: ttl, now: now, shared: shared, used: map[string]time.Time{}}
}

// grant contains the permissions of a link.
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

// issue returns a new link as a path segment.
func (l *links) issue(id livelog.ID) string {
	return seal(l.key, grant{
		Account: id.Account, Key: id.Key, Expires: l.now().Add(l.ttl).UnixMilli(), Nonce: rand.Text(),
	})
}

// check returns the grant of a valid link.
func (l *links) check(ctx context.Context, link string) (grant, error) {
	var g grant
	if !unseal(l.key, link, &g) {
		return grant{}, errLink
	}
	if l.now().UnixMilli() >= g.Expires {
		return grant{}, errExpired
	}
	if l.shared != nil {
		used, err := l.shared.Spent(ctx, g.Nonce)
		if err == nil && used {
			err = errUsed
		}
		return g, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.used[g.Nonce]; ok {
		return grant{}, errUsed
	}
	return g, nil
}

// use records that a link was used.
func (l *links) use(ctx context.Context, g grant) error {
	if l.shared != nil {
		return l.shared.Spend(ctx, g.Nonce, time.UnixMilli(g.Expires))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for nonce, expires := range l.used {
		if !now.Before(expires) {
			delete(l.used, nonce)
		}
	}
	l.used[g.Nonce] = time.UnixMilli(g.Expires)
	return nil
}
