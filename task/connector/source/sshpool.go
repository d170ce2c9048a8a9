package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/delegate-io/dlite/internal/source"
)

const (
	// mostSessions bounds the sessions of a connection at a time. OpenSSH permits 10.
	mostSessions = 6
	// sshIdle is how long an unused connection stays open.
	sshIdle = 2 * time.Minute
)

var noDeadline time.Time

// sshPool shares connections to SSH servers.
type sshPool struct {
	mu      sync.Mutex
	conns   map[string][]*sshConn
	dialing map[string]chan struct{} // by key, closed at the end of the attempt
	closed  bool
}

// sshConn is a connection. The lock of the pool guards all but client.
type sshConn struct {
	client   *ssh.Client
	key      string
	sessions int
	used     bool // a session has succeeded
	dead     bool
	idle     *time.Timer
}

func newSSHPool() *sshPool {
	return &sshPool{conns: map[string][]*sshConn{}, dialing: map[string]chan struct{}{}}
}

// sshKey identifies the connections that polls may share: one user of one server, with the same credentials and the
// same idea of the server's key.
func sshKey(cfg *source.GitConfig, address *url.URL) string {
	data, _ := json.Marshal([]any{sshHost(address), sshUser(cfg, address), cfg.Auth, cfg.HostKeys}) // texts
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// get returns a connection with room for a session. The caller gives it back with put.
func (p *sshPool) get(ctx context.Context, key string, dial func(context.Context) (*ssh.Client, error)) (*sshConn, error) {
	for {
		c, wait := p.acquire(key)
		if c != nil {
			return c, nil
		}
		if wait == nil {
			break
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	client, err := dial(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.dialing[key])
	delete(p.dialing, key)
	if err != nil {
		return nil, err
	}
	c := &sshConn{client: client, key: key, sessions: 1}
	p.conns[key] = append(p.conns[key], c)
	return c, nil
}

// acquire returns a connection with room. Without one, the caller waits for the attempt of another caller, or connects
// itself if there is none.
func (p *sshPool) acquire(key string) (c *sshConn, wait <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns[key] {
		if c.sessions < mostSessions && !c.dead {
			c.sessions++
			if c.idle != nil {
				c.idle.Stop()
			}
			return c, nil
		}
	}
	if attempt := p.dialing[key]; attempt != nil {
		return nil, attempt
	}
	p.dialing[key] = make(chan struct{})
	return nil, nil
}

// put gives a connection back. A lost one is closed with its last session. Fresh reports that no session on it has
// succeeded.
func (p *sshPool) put(c *sshConn, lost bool) (fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.sessions--
	c.used = c.used || !lost
	c.dead = c.dead || lost || p.closed
	if c.sessions > 0 {
		return !c.used
	}
	if c.dead {
		p.drop(c)
		return !c.used
	}
	if c.idle == nil {
		c.idle = time.AfterFunc(sshIdle, func() { p.expire(c) })
	} else {
		c.idle.Reset(sshIdle)
	}
	return !c.used
}

func (p *sshPool) expire(c *sshConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.sessions == 0 {
		p.drop(c)
	}
}

// drop closes a connection without sessions. The caller has the lock.
func (p *sshPool) drop(c *sshConn) {
	c.dead = true
	if c.idle != nil {
		c.idle.Stop()
	}
	all := p.conns[c.key]
	for i := range all {
		if all[i] == c {
			p.conns[c.key] = append(all[:i:i], all[i+1:]...)
			_ = c.client.Close()
			break
		}
	}
	if len(p.conns[c.key]) == 0 {
		delete(p.conns, c.key)
	}
}

// close closes the idle connections now, and the others with their last session.
func (p *sshPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, all := range p.conns {
		for _, c := range all {
			c.dead = true
			if c.sessions == 0 {
				p.drop(c)
			}
		}
	}
}
